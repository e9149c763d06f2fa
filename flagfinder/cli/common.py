# SPDX-License-Identifier: MIT
"""What every verb shares: its parser's shape, common options, JSON output."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from flagfinder.live.patient import NOT_OF_KERNEL, has_ended, is_of_kernel, status_of
from flagfinder.report.terminal import Terminal
from flagfinder.shared.errors import UsageError
from flagfinder.shared.private_file import write_private

Run = Callable[[argparse.Namespace, Terminal], int]
Subparsers = Any  # argparse keeps the type of add_subparsers' result private

# Why Frida is kept out of running processes: docs/architecture.md.
FRIDA_HARM = (
    "Frida's way into a running process may kill it, where a thread holds the dynamic loader's lock"
)

# All that `flagfinder --help` shows of them, so that it imports none of their modules.
VERBS = {
    "record": "Run a program and record what its threads execute.",
    "trace": "Look into a recording.",
    "diff": "Compare a good run with one that spins, and name what it waits for.",
    "registers": "Show the registers at the blocks before two runs part.",
    "discover": "List the words that threads polled in a good run, and who wrote them.",
    "find": "Record a good run and one that spins, and name what it waits for.",
    "why": "Say who keeps a process, live or recorded, from going on, and why.",
    "guard": "Run a command; if it hangs, say why, and end it.",
    "spin": "Name what the threads of a live process poll, or wait for.",
    "core": "What `spin` tells, from the core file of a dead process.",
    "watch": "Show who reads and writes a word of a process, without stopping it.",
    "poke": "Write the value that ends a loop into a live process.",
    "events": "Record who runs, who wakes whom, and what threads wait for.",
    "mark": 'Say "here it hung" while `events record` runs.',
    "graph": "Why each stretch of each thread began: the event graph.",
    "diagnose": "Name the thread that is to blame for a hang.",
    "report": "The story of a hang as one HTML page, with a timeline.",
    "critical-path": "Which threads and waits made up the time of a thread.",
    "compare": "System calls by user code, a good run against a bad one.",
    "hosts": "Recordings of many hosts together: who waits for whom.",
    "overhead": "What `events record` costs a program.",
    "doctor": "Say what works for this user on this machine.",
    "mcp": "Be a server for agents, with the verbs that look at processes as its tools.",
}

EXIT_FOUND = 0
EXIT_NOTHING_FOUND = 1
EXIT_INTERRUPTED = 130

_SIZE = re.compile(r"^(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?$", re.ASCII | re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def _short(text: str) -> str:
    import reprlib  # for what is refused

    return reprlib.repr(text)


class Number:
    """A whole number from ``low`` to ``high``, for argparse; ``what`` is what the user is told that
    it should be.

    ``metavar`` stands for it in the help. ``base`` 0 takes hexadecimal numbers, too, as in 0x10;
    ``none`` is a word that stands for no number. The bounds are those of the engine's types: what
    lies outside is refused here, before anything is opened or started.
    """

    def __init__(
        self,
        what: str,
        low: int,
        high: int,
        metavar: str | None = None,
        base: int = 10,
        none: str | None = None,
    ) -> None:
        self.what, self.low, self.high = what, low, high
        self.metavar, self.base, self.none = metavar, base, none

    def __call__(self, text: str) -> int | None:
        if text == self.none:
            return None
        try:
            value = int(text, self.base)
        except ValueError:
            value = None
        if value is None or not self.low <= value <= self.high:
            raise argparse.ArgumentTypeError(
                f"{_short(text)} is no {self.what} from {self.low} to {self.high}"
            )
        return value


class Size:
    """A number of bytes up to ``high``, as in ``64M``, ``1.5GiB``, ``4096``, for argparse."""

    metavar = "SIZE"

    def __init__(self, high: int = 2**62) -> None:
        self.high = high

    def __call__(self, text: str) -> int:
        match = _SIZE.match(text)
        value = float(match[1]) * 1024 ** _POWERS[match[2].upper()] if match else 0
        if not 1 <= value <= self.high:
            raise argparse.ArgumentTypeError(
                f"{_short(text)} is no size from 1 to {self.high} bytes; write it like 64M "
                "or 1.5GiB"
            )
        return int(value)


_TIME = re.compile(r"(.*?)(ns|us|ms|s|)")
_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0}


class Seconds:
    """A number of seconds above zero, up to ``high``, for argparse; also as in 10ms, 250us."""

    metavar = "SECONDS"

    def __init__(self, high: float = 86400 * 365) -> None:
        self.high = high

    def __call__(self, text: str) -> float:
        match = _TIME.fullmatch(text)
        try:
            value = float(match[1]) * _UNITS[match[2]] if match else math.nan
        except ValueError:
            value = math.nan
        # Less than a nanosecond would be none at all to the engine.
        if not 1e-9 <= value <= self.high:
            raise argparse.ArgumentTypeError(
                f"{_short(text)} is no number of seconds from 1e-9 to {self.high:.9g}"
            )
        return value


class ProcessId(Number):
    """The id of a process that lives. A thread's id is refused: /proc shows a process at that
    number, too, of which half of the files are those of the thread.
    """

    def __call__(self, text: str) -> int | None:
        try:
            pid = super().__call__(text)
        except argparse.ArgumentTypeError as error:
            if not re.fullmatch(r"[A-Za-z][\w.-]*", text, re.ASCII):
                raise
            fix = f"`flagfinder why -n {text}` finds it by name, and says its id."
            raise UsageError(f"{_short(text)} is no process id", str(error), fix) from None
        status = status_of(pid)
        process, parent = status.get("Tgid"), status.get("PPid")
        found = fix = ""
        if process not in (None, str(pid)):
            found = f"{pid} is a thread of process {process}"
            fix = f"Name the process: {process}. `flagfinder why {pid}` begins with the thread."
        elif has_ended(status):
            found = f"its parent, process {parent}, has not asked for its exit status"
            fix = f"Ask the parent: `flagfinder why {parent}`"
        elif is_of_kernel(pid):
            found, fix = "it is a thread of the kernel", NOT_OF_KERNEL
        if found:
            raise UsageError(f"{pid} is no process that can be looked at", found, fix)
        return pid


COUNT = Number("number", 1, 2**31 - 1, "N")
_HIGHEST = 2**31 - 1
PID = ProcessId("process id", 1, _HIGHEST, "PID")
ANY_ID = Number("process id", 1, _HIGHEST, "PID")
TID = Number("thread id", 1, 2**31 - 1, "TID")
NS = Number("time in ns", 0, 2**63 - 1, "NS")
ADDRESS = Number("address", 0, 2**64 - 1, base=0)
WORD_SIZE = Number("number of bytes", 1, 8)
SIZE = Size()
SECONDS = Seconds()


def core_file(text: str) -> Path:
    """The path of a core file, for argparse. A process's id is a likely mistake."""
    path = Path(text)
    if text.isdecimal() and not path.exists():
        raise UsageError(
            f"{text} is no core file",
            f"there is no file {text}; it may be the id of a process",
            f"`flagfinder why {text}` asks a live process, and `gcore {text}` writes its core.",
        )
    return path


class _Need(NamedTuple):
    """``option`` does nothing unless ``holds``; ``what`` it needs completes "it ..."."""

    option: str
    what: str
    holds: Callable[[argparse.Namespace], bool]


class Parser(argparse.ArgumentParser):
    """argparse, with usage errors in our four parts and long help texts kept as written."""

    # argparse's own options, handed on.
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(*args, **kwargs)
        self._needs: list[_Need] = []

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        """As argparse's, but a type knows what stands for it in the help, and what may be repeated
        is a list. Groups of options have argparse's own.
        """
        kind = options.get("type")
        is_file = kind is Path and names[0].startswith("-")
        if word := "FILE" if is_file else getattr(kind, "metavar", None):
            options.setdefault("metavar", word)
        if options.get("action") == "append":
            options.setdefault("default", [])
        return super().add_argument(*names, **options)

    def _print_message(self, message: str, file: Any = None) -> None:
        """As argparse's, but an error of the stream is raised."""
        (file or sys.stderr).write(message)

    def needs(self, option: str, what: str, holds: Callable[[argparse.Namespace], bool]) -> None:
        """Refuses ``option``, which would do nothing, unless ``holds`` is true of the parsed
        options.

        ``what`` completes "it ...", as in "goes with --stacks only".
        """
        self._needs.append(_Need(option, what, holds))

    def refuse_idle(self, parsed: argparse.Namespace, words: Sequence[str]) -> None:
        """Raises UsageError for the first option among ``words`` that would do nothing."""
        given = {word.partition("=")[0] for word in words}
        for need in self._needs:
            if need.option in given and not need.holds(parsed):
                raise UsageError(
                    f"{need.option} would have no effect",
                    f"it {need.what}",
                    f"Leave it out; `{self.prog} --help` shows what goes together.",
                )

    def options_of(self, verb: str) -> list[str]:
        """The options that this verb takes, those of its own verbs included."""
        parsers = [self]
        found: list[str] = []
        for parser in parsers:
            for action in parser._actions:
                found += action.option_strings
                if isinstance(action.choices, dict):
                    below = action.choices.items()
                    parsers += [one for name, one in below if parser is not self or name == verb]
        return found

    def error(self, message: str) -> NoReturn:
        raise UsageError(
            "The command line isn't understood",
            message,
            f"`{self.prog} --help` shows the options and examples.",
        )


def add_verb(
    subparsers: Subparsers, name: str, summary: str, examples: str, run: Run, **options: str
) -> Parser:
    """A verb's parser with the options that all verbs have."""
    parser: Parser = subparsers.add_parser(
        name, help=summary, description=summary, epilog=f"examples:\n{examples}", **options
    )
    parser.set_defaults(run=run, leaf=parser)
    add_output_options(parser)
    return parser


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Options that every verb has: how it answers."""
    shared = parser.add_argument_group("output")
    answer = shared.add_mutually_exclusive_group()
    answer.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object, also about a failure, and nothing else to stdout: what "
        "programs print there goes to stderr",
    )
    answer.add_argument(
        "--json-file", type=Path, metavar="FILE", help="write that object to FILE instead"
    )
    shared.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="auto honours NO_COLOR (default)",
    )
    shared.add_argument(
        "-q", "--quiet", action="store_true", help="no progress, no hints; warnings stay"
    )
    shared.add_argument("--debug", action="store_true", help="show the traceback of an error")


def add_environment(parser: Parser) -> None:
    """``--env``, for verbs that start a program."""
    parser.add_argument(
        "--env",
        action="append",
        metavar="NAME=VALUE",
        help="set this for the program alone (repeatable); what is set already reaches it "
        "unchanged",
    )


def add_places(parser: Parser, program: str) -> None:
    """Where the files of a dead process lie; ``program`` begins the help of its executable."""
    parser.add_argument(
        "--program", type=Path, metavar="EXE", help=f"{program}, where it lies elsewhere now"
    )
    parser.add_argument(
        "--sysroot",
        type=Path,
        metavar="DIR",
        help="where the files of the process lie (default: this machine's)",
    )


def check_sysroot(path: Path | None) -> None:
    """Raises UsageError where the files of a dead process lie in no folder."""
    from flagfinder.live.apart import use_apart  # few name one

    def check() -> None:
        assert path is not None
        if not path.is_dir():
            raise UsageError(
                "The files of the process can't be read",
                f"{path} is no folder",
                "Name the folder below which they lie as on their machine: DIR/usr/lib/..",
            )

    if path is not None:
        use_apart(path, check)


def add_threads(parser: Parser) -> None:
    """``--thread``, of which there may be several."""
    parser.add_argument("--thread", type=TID, action="append", help="only this thread (repeatable)")


def add_timeout(parser: Parser, default: float) -> None:
    """``--timeout``, of verbs that ask live or dead processes."""
    parser.add_argument(
        "--timeout",
        type=SECONDS,
        default=default,
        help=f"after SECONDS tell what is known, and what was not asked (default {default:g})",
    )


def write_page(path: Path, page: Callable[[], str], terminal: Terminal) -> None:
    """Writes a page beside the result, which is told in any case."""
    from flagfinder.live.apart import use_apart  # most commands write no page

    try:
        content = page().encode("utf-8", "backslashreplace")
        use_apart(path, lambda: write_private(path, content))
    except OSError as error:
        terminal.warning(f"{path} can't be written: {error.strerror}")
    else:
        terminal.message(f"wrote {path}")


def check_writable(path: Path) -> None:
    """Raises UsageError where no file can be made there, before anything is asked, and OSError
    where the file system does not answer.
    """
    from flagfinder.live.apart import use_apart

    use_apart(path, lambda: _check_writable(path))


def _check_writable(path: Path) -> None:
    folder = path.parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        found = f"{path} is a folder" if path.is_dir() else f"{folder} is no folder to write to"
        raise UsageError(
            f"{path} can't be written", found, "Name a file in a folder that is there."
        )


def add_hang(parser: Parser) -> None:
    """``--thread`` and ``--at``: which hang of a recording of events."""
    parser.add_argument(
        "--thread", type=TID, help="the thread that hung (default: the main thread)"
    )
    parser.add_argument(
        "--at", type=NS, help="when (default: the last mark, or what was most unusual)"
    )


def add_host(parser: Parser) -> None:
    """``--host``: in a graph of several hosts, whose thread is meant."""
    parser.add_argument(
        "--host", metavar="NAME", help="the host of the thread, in a graph of several"
    )


def add_export(parser: Parser, formats: Sequence[str]) -> None:
    """Where another tool's file goes, and which it is."""
    parser.add_argument(
        "-o", "--output", type=Path, required=True, help="the file or folder to write"
    )
    parser.add_argument("--format", choices=formats, help="default: what the file's name ends in")


def print_json(terminal: Terminal, verb: str, fields: Mapping[str, object]) -> None:
    """One object with its schema in front."""
    terminal.answer({"schema": f"flagfinder.{verb}/1", **fields})


def refuse_backwards(start: int | None, end: int | None) -> None:
    """Raises UsageError for a time span that ends before it begins."""
    if start is not None and end is not None and start > end:
        raise UsageError(
            "The time span ends before it begins", f"--from {start}, --to {end}", "Swap the two."
        )
