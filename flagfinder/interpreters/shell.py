# SPDX-License-Identifier: MIT
"""What a shell asks between two sleeps of a loop, by the text of its script.

In: a process that a shell runs, and the commands that are its children now. Out: the conditions
that end the loop to which the child belongs. Blind spots: files that the script sources, code that
it makes by `eval`, loops that pause otherwise than by `sleep`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flagfinder import _core
from flagfinder.shared.record import dataclass

if TYPE_CHECKING:
    from tree_sitter import Node

    from flagfinder.interpreters.fields import AskedFields, ScriptFields

_SHELLS = {"ash", "bash", "dash", "ksh", "ksh93", "mksh", "sh", "yash", "zsh"}
_LARGEST = 1 << 20  # bytes of a script
_PARSING = 1.0  # seconds of processor time: for what is no script, it may take hours
_CHUNK = 1 << 16
_LOOKS = 5  # between two commands a shell has no child
_BETWEEN = 0.02  # s
_LONGEST = 120  # columns of a condition
_END = 40  # of these at its end, where a path has its name
# Descriptors by which shells read their script: bash, dash, zsh.
_OWN = (255, 10, 12)

_LOOPS = ("while_statement", "for_statement", "c_style_for_statement")
_PAUSES = ("sleep", "usleep")
_LEAVES = ("break", "exit", "return")
_ALWAYS = ("true", ":", "[ 1 ]", "((1))", "(( 1 ))", "test 1")


class UnclearError(Exception):
    """The text of a script is not understood; the text of this says where, in a few words."""


@dataclass(frozen=True)
class Polling:
    """A loop that asks and sleeps. ``asks``: the conditions that end it; ``line``: from 1."""

    asks: tuple[str, ...]
    line: int
    pause: str


@dataclass(frozen=True)
class Script:
    """A script's text, and how people call it; ``-c`` if the command line holds it."""

    name: str
    text: bytes


@dataclass(frozen=True)
class ScriptLoop:
    """The loop that a shell is in, of the script ``file``."""

    file: str
    loop: Polling

    @property
    def asks(self) -> str:
        """What it asks, and where that stands."""
        return f"{self.conditions} ({self.file}:{self.loop.line})"

    @property
    def conditions(self) -> str:
        """What it asks."""
        return " or ".join(f"`{ask}`" for ask in self.loop.asks)

    @property
    def told(self) -> str:
        """The same as a sentence."""
        return f"its script asks {self.asks} again and again, with `{self.loop.pause}` in between"

    def to_raw(self) -> ScriptFields:
        """As ``spin --json`` prints it."""
        loop = self.loop
        asks = list(loop.asks)
        return {"file": self.file, "line": loop.line, "asks": asks, "pause": loop.pause}

    @classmethod
    def from_raw(cls, raw: ScriptFields) -> ScriptLoop:
        """The reverse."""
        return cls(raw["file"], Polling(tuple(raw["asks"]), raw["line"], raw["pause"]))


def shell_loop(pid: int) -> ScriptLoop | None:
    """The loop in which process ``pid`` asks again and again; None where that is no shell, or the
    text of its script does not tell. Raises UnclearError where that is not understood, and it waits
    for a command.
    """
    script = _script(pid)
    if script is None:
        return None
    root = parsed(script.text)
    if root is None:
        raise UnclearError(
            f"the shell's script ({script.name}) takes too long to be read: what it asks in a loop "
            "is not known"
        )
    waits = False
    for _ in range(_LOOKS):
        told = [polling(root, words) for words in _children(pid)]
        waits = waits or bool(told)
        found = {loop for loop in told if loop is not None}
        if found:
            return ScriptLoop(script.name, found.pop()) if len(found) == 1 else None
        time.sleep(_BETWEEN)
    if waits and root.has_error:
        line = min((node.start_point[0] for node in _all(root, ("ERROR",))), default=0) + 1
        raise UnclearError(
            f"the shell's script ({script.name}) is not understood at line {line}: what it asks in "
            "a loop there is not known"
        )
    return None


def asked_in_shell(pid: int) -> AskedFields | None:
    """The same, as ``why`` takes it."""
    loop = shell_loop(pid)
    if loop is None:
        return None
    return {
        "tid": pid,
        "name": loop.asks,
        "statement": loop.conditions,
        "at": {"function": None, "file": loop.file, "line": loop.loop.line},
        "owed": [],
        "nobody": loop.told,
        "blocks": False,
        "tells_all": True,
    }


def _script(pid: int) -> Script | None:
    process = Path(f"/proc/{pid}")
    try:
        shell = process.joinpath("exe").readlink().name
        words = _core.arguments_of(pid).split(b"\0")[:-1]
    except OSError:
        return None
    applet = words[0].rpartition(b"/")[2] if words else b""
    if shell not in _SHELLS and not (shell == "busybox" and applet in (b"sh", b"ash")):
        return None
    is_text, word = operand(words)
    if word is None:
        return None
    if is_text:
        return Script("-c", word)
    name = os.fsdecode(word)
    base = name.rpartition("/")[2]
    own = [fd for fd in _OWN if _links_to(process / "fd" / str(fd), base)]
    for fd in (*own, None):
        try:
            # The process names the file: it may be a FIFO, another one's, or where nobody answers.
            text = (
                _core.read_file_of(pid, name, _LARGEST + 1)[0]
                if fd is None
                else _core.read_open_file_of(pid, fd, _LARGEST + 1)
            )
        except (OSError, ValueError):
            continue
        return Script(base, text) if len(text) <= _LARGEST else None
    return None


def _links_to(path: Path, base: str) -> bool:
    try:
        return path.readlink().name == base
    except OSError:
        return False


def operand(words: Sequence[bytes]) -> tuple[bool, bytes | None]:
    """Whether a shell's command line holds the script's text, behind ``-c``, and that text or the
    file's name; None: it reads commands from elsewhere.
    """
    is_text = False
    rest = iter(words[1:])
    for word in rest:
        if word in (b"--rcfile", b"--init-file", b"-o", b"+o", b"-O", b"+O"):
            next(rest, None)
        elif word == b"--":
            return is_text, next(rest, None)
        elif word[:1] not in (b"-", b"+") or word == b"-":
            return is_text, word
        elif word[:2] != b"--":
            is_text = is_text or (word[:1] == b"-" and b"c" in word)
            if word.endswith(b"o"):
                next(rest, None)
    return is_text, None


def _children(pid: int) -> Iterator[list[bytes]]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        return
    for child in children:
        try:
            words = _core.arguments_of(int(child)).split(b"\0")[:-1]
        except OSError:
            continue
        if words:
            yield words


def parsed(text: bytes) -> Node | None:
    """The syntax of a script; None where to find it out takes too long."""
    # Only who looks at a shell waits for the import.
    from tree_sitter import Language, Parser  # noqa: PLC0415
    from tree_sitter_bash import language  # noqa: PLC0415

    begun = time.thread_time()
    try:
        tree = Parser(Language(language())).parse(
            lambda at, _: text[at : at + _CHUNK],
            progress_callback=lambda *_: time.thread_time() - begun > _PARSING,
        )
    except ValueError:
        return None
    return tree.root_node


def polling(root: Node, child: Sequence[bytes]) -> Polling | None:
    """The loop of a script that asks something and sleeps, and to which the command line ``child``
    belongs. None where there is none, or more than one that asks something else.
    """
    found = set()
    for loop in _all(root, _LOOPS):
        commands = list(_within(loop, "command"))
        pauses = [command for command in commands if _name(command) in _PAUSES]
        asks = tuple(dict.fromkeys(_asks(loop)))
        if pauses and asks and any(_is_run(command, child) for command in commands):
            found.add(Polling(asks, loop.start_point[0] + 1, _text(pauses[0])))
    return found.pop() if len(found) == 1 else None


def _all(node: Node, kinds: Sequence[str]) -> Iterator[Node]:
    left = [node]
    while left:
        one = left.pop()
        if one.type in kinds:
            yield one
        left += one.children


def _within(loop: Node, kind: str) -> Iterator[Node]:
    """Nodes that the loop itself executes, without inner loops and definitions of functions."""
    left = loop.children[::-1]
    while left:
        one = left.pop()
        if one.type == kind:
            yield one
        if one.type not in (*_LOOPS, "function_definition"):
            left += reversed(one.children)


def _asks(loop: Node) -> Iterator[str]:
    """What is asked to leave the loop."""
    if loop.type == "while_statement":
        asked = "".join(_raw(node) for node in loop.children_by_field_name("condition"))
        asked = asked.rstrip("; \n")
        if " ".join(asked.split()) not in _ALWAYS:
            yield _short(f"{loop.children[0].type} {asked}")
    for kind in ("if_statement", "elif_clause"):
        for node in _within(loop, kind):
            conditions = node.children_by_field_name("condition")
            inside = [one for one in node.children if one not in conditions]
            if any(_leaves(one) for one in inside if one.type != "elif_clause"):
                asked = "".join(_raw(one) for one in conditions)
                yield _short(f"if {asked.rstrip('; ')}")
    for node in _within(loop, "list"):
        if len(node.children) == 3 and _leaves(node.children[2]):
            yield _short(_text(node.children[0]))


def _leaves(node: Node) -> bool:
    left = [node]
    while left:
        one = left.pop()
        if one.type == "command" and _name(one) in _LEAVES:
            return True
        if one.type in ("compound_statement", "subshell", "else_clause"):
            left += one.children
    return False


def _is_run(command: Node, child: Sequence[bytes]) -> bool:
    """Whether the child may be this command: its words are the same where they stand in the text
    as they are.
    """
    name = child[0].rpartition(b"/")[2].decode(errors="replace")
    if _name(command).rpartition("/")[2] != name:
        return False
    arguments = command.children_by_field_name("argument")
    plain = [_text(one) for one in arguments if one.type in ("word", "number")]
    given = [word.decode(errors="replace") for word in child[1:]]
    return all(word in given for word in plain if not set(word) & set("$`*?[{~\\"))


def _name(command: Node) -> str:
    name = command.child_by_field_name("name")
    return _text(name) if name is not None else ""


def _text(node: Node) -> str:
    return _short(_raw(node))


def _raw(node: Node) -> str:
    return (node.text or b"").decode(errors="replace")


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - _END - 1]}…{text[-_END:]}"
