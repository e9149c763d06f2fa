# SPDX-License-Identifier: MIT
"""The sources of the Python program that a process runs, as the process sees them."""

from __future__ import annotations

import ast
import errno
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from flagfinder import _core
from flagfinder.interpreters.python_loop import Loop, TooManyWaysError, find_loops
from flagfinder.shared.syntax import tree_of
from flagfinder.shared.typed import Self

# File, function, lines, caller.
_Seen = tuple[str, str, frozenset[int], tuple[str, int] | None]
_COMMAND = "<string>"  # the file of a script that the command line holds
_PARSING = 0.5  # seconds for the sources; repeating threads come first
_LARGEST_SOURCE = 1 << 20
# A parser makes a tree of so many parts within the time above, and of some 100 MiB at most.
_MOST_WORDS = 60_000
_WORD = re.compile(rb"\w+|[^\w\s]")
# What stands within each other, at most: reading it and writing it down again is recursive.
_DEEPEST = 300
_DEEPEST_EXPRESSION = 100
_MOST_BITS = 14_000  # of a number: Python writes one of 4300 digits at most


_LIBRARY = re.compile(r"/lib(64)?/python3[^/]*/(?!site-packages/|dist-packages/)|^<frozen ")


def is_library(file: str) -> bool:
    """Whether Python's own library has the file."""
    return bool(_LIBRARY.search(file))


class Sources:
    """The source files of a process, as it sees them, each read once."""

    def __init__(
        self,
        read: Callable[[str], tuple[bytes, float]],
        arguments: Callable[[], bytes],
        started: float,
    ) -> None:
        self._read, self._arguments = read, arguments
        self._started = started
        self._content: dict[str, bytes] = {}
        self._trees: dict[str, ast.Module | str] = {}
        self._loops: dict[_Seen, list[Loop] | str] = {}
        self._spent = 0.0

    @classmethod
    def of_process(cls, pid: int) -> Self:
        """Those of a live process."""
        return cls(
            # The process names the file: it may be a FIFO, another one's, or where nobody answers.
            lambda file: _core.read_file_of(pid, file, _LARGEST_SOURCE + 1),
            lambda: _core.arguments_of(pid),
            _start_time(pid),
        )

    @classmethod
    def of_core(cls, core: _core.CoreMemory, written: float) -> Self:
        """Those of a dead process, where they are as old as its core file, which was ``written``
        in seconds since 1970. The core does not hold its whole command line.
        """

        def read(file: str) -> tuple[bytes, float]:
            with os.fdopen(core.open(file), "rb") as content:
                return content.read(_LARGEST_SOURCE + 1), os.fstat(content.fileno()).st_mtime

        return cls(read, bytes, written)

    def loops(
        self,
        file: str,
        function: str,
        lines: frozenset[int],
        caller: tuple[str, int] | None = None,
    ) -> list[Loop] | str:
        """The loops around ``lines``, innermost first, or why the source does not tell.
        ``caller``: the file and the line that called the function.
        """
        tree = self._tree(file)
        if isinstance(tree, str):
            return tree
        place = (file, function, lines, caller)
        if place not in self._loops:
            called_in = self.tree(caller[0]) if caller is not None else None
            call = (called_in, caller[1]) if called_in is not None and caller is not None else None
            try:
                self._loops[place] = find_loops(tree, function, lines, call)
            except TooManyWaysError:
                self._loops[place] = (
                    f"a loop of {function} in {file} has too many ways out to tell them"
                )
        return self._loops[place]

    def tree(self, file: str) -> ast.Module | None:
        """The source of ``file``; None where it can't be read."""
        tree = self._tree(file)
        return None if isinstance(tree, str) else tree

    def _tree(self, file: str) -> ast.Module | str:
        if file not in self._trees:
            begin = time.monotonic()
            self._trees[file] = self._parse(file)
            self._spent += time.monotonic() - begin
        return self._trees[file]

    def lines(self, file: str, first: int, last: int) -> tuple[str, ...]:
        """The text of some lines, without the indentation that they share."""
        text = self._content.get(file, b"").decode(errors="replace").splitlines()[first - 1 : last]
        indents = [len(line) - len(line.lstrip()) for line in text if line.strip()]
        return tuple(line[min(indents, default=0) :].rstrip() for line in text)

    def _parse(self, file: str) -> ast.Module | str:
        if self._spent > _PARSING:
            return f"no time was left to read {file}"
        if file == _COMMAND:
            return self._parse_command()
        unreadable = f"the source {file} can't be read"
        try:
            content, written = self._read(file)
        except OSError as error:
            is_silent = error.errno == errno.ETIMEDOUT
            return f"{unreadable}: {error.strerror}" if is_silent else unreadable
        except ValueError:
            return unreadable
        if written > self._started:
            return f"{file} has changed since the program was started"
        return self._parse_content(file, content)

    def _parse_command(self) -> ast.Module | str:
        """The code that follows ``-c`` on the command line. Code that this program compiles from
        text has the same file name.
        """
        unreadable = f"the source {_COMMAND} can't be read"
        try:
            words = self._arguments().split(b"\0")[:-1]
        except OSError:
            return unreadable
        text = script_of(words)
        tree = self._parse_content(_COMMAND, text) if text is not None else unreadable
        if isinstance(tree, str):
            return tree
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        return unreadable if names & {"exec", "eval", "compile"} else tree

    def _parse_content(self, file: str, content: bytes) -> ast.Module | str:
        if len(content) > _LARGEST_SOURCE or _has_too_many_words(content):
            return f"{file} is too large to be read"
        try:
            tree = tree_of(content)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return f"{file} is not in the Python that flagfinder itself runs in"
        if _is_extreme(tree):
            return f"{file} nests too deeply, or holds a number too large, to be read"
        self._content[file] = content
        return tree


def _has_too_many_words(content: bytes) -> bool:
    return any(count >= _MOST_WORDS for count, _ in enumerate(_WORD.finditer(content)))


def _is_extreme(tree: ast.Module) -> bool:
    """Whether Python would fail to go through the tree, or to write parts of it as text."""
    left: list[tuple[ast.AST, int, int]] = [(tree, 0, 0)]
    while left:
        node, depth, inside = left.pop()
        if depth > _DEEPEST or inside > _DEEPEST_EXPRESSION:
            return True
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, int)
            and node.value.bit_length() > _MOST_BITS
        ):
            return True
        for child in ast.iter_child_nodes(node):
            is_text = inside > 0 or isinstance(child, (ast.expr, ast.pattern))
            left.append((child, depth + 1, inside + is_text))
    return False


def script_of(words: Sequence[bytes]) -> bytes | None:
    """The script that a command line of Python holds; None: it names a file or a module."""
    rest = iter(words[1:])
    for word in rest:
        if not word.startswith(b"-") or word == b"-":
            return None
        if word.startswith(b"--"):
            if word == b"--check-hash-based-pycs":
                next(rest, None)
            continue
        for at, letter in enumerate(word.decode("latin-1")[1:], 2):
            if letter == "c":
                return word[at:] or next(rest, None)
            if letter == "m":
                return None
            if letter in "WX":
                if not word[at:]:
                    next(rest, None)
                break
    return None


def _start_time(pid: int) -> float:
    """Seconds since the epoch; infinite when the process is gone. The kernel counts a process's
    start from boot.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return float("inf")
    ticks = int(text.rpartition(")")[2].split()[19]) + 1
    since_boot = ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + since_boot
