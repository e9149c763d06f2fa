# SPDX-License-Identifier: MIT
"""``flagfinder guard``: runs a command, and says why it hangs if it does."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import secrets
import time
from collections.abc import Callable, Generator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from flagfinder import _core
from flagfinder.cli.common import SECONDS, VERBS, Subparsers, add_timeout, add_verb
from flagfinder.live.apart import LeftBehind, ask_apart, use_apart
from flagfinder.live.deadline import TREE_TIMEOUT, Deadline
from flagfinder.live.guard import Hang, guard
from flagfinder.live.tree import LeftProcess
from flagfinder.live.why_chain import why_texts
from flagfinder.report.junit import Problem, junit_xml
from flagfinder.report.terminal import Terminal
from flagfinder.report.units import count
from flagfinder.report.why_page import why_page
from flagfinder.shared.errors import FlagfinderError, UsageError
from flagfinder.shared.private_file import write_private
from flagfinder.shared.record import replace
from flagfinder.shared.spot import Spot
from flagfinder.shared.visible import on_github, quote_command, visible

if TYPE_CHECKING:
    from flagfinder.live.fields import GuardFields, WhyFields

_EXAMPLES = """\
  flagfinder guard --after 60 -o hang -- make test      then hang/why.txt, why.json, why.html
  flagfinder guard --idle 30 -- ./server-test           30 s without input, output, CPU
  flagfinder guard --after 60 --core -o hang -- ./app   also hang/core.PID of each process
  flagfinder guard --after 60 --junit out.xml -- ./app  a JUnit testcase

The command runs as it is: nothing is watched until it hangs. Then `flagfinder why` asks each of
its processes, and all of them are ended. Processes of other users (`sudo ..`) can't be: they are
named. Under GitHub Actions the story is also an annotation at its line, and in the step's summary.

Under sudo the command runs as root, as guard itself (`record` and `events` run it as the caller).
A `kill -9` of guard leaves the command running, as one of timeout(1) does. A process whose parent
ends has guard for a parent, not init, until guard ends.

exit codes: that of the command (128 + N for signal N); 124 it hung; 126, 127 it can't be started"""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_verb(subparsers, "guard", VERBS["guard"], _EXAMPLES, run)
    parser.add_argument("--after", type=SECONDS, help="it hangs when it runs for so long")
    parser.add_argument(
        "--idle",
        type=SECONDS,
        help="it hangs when for so long its processes read and write nothing and use no processor",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help="write why.txt, why.json and why.html there",
    )
    parser.add_argument(
        "--core", action="store_true", help="also write a core file of each process there"
    )
    add_timeout(parser, TREE_TIMEOUT)
    parser.add_argument("--junit", type=Path, help="write how it ended as JUnit XML")
    parser.needs("--core", "needs -o DIR to write to", lambda parsed: parsed.output is not None)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    if not options.command or (options.after is None and options.idle is None):
        raise UsageError(
            "There is nothing to guard"
            if not options.command
            else "It isn't said when the command hangs",
            "no command behind --" if not options.command else "neither --after nor --idle",
            "flagfinder guard --after 60 -- COMMAND",
        )
    if options.output is not None:
        with contextlib.suppress(OSError):  # said once there is a story
            use_apart(options.output, lambda: _check_folder(options.output))
    return run_guarded(
        options.command,
        terminal,
        after=options.after,
        idle=options.idle,
        timeout=options.timeout,
        output=options.output,
        cores=options.core,
        junit_path=options.junit,
        as_json=options.json,
    )


def _check_folder(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise UsageError(
            f"{path} can't be written to", "it is no folder", "Name a folder, or a new one."
        )


def run_guarded(
    words: Sequence[str],
    terminal: Terminal,
    *,
    after: float | None = None,
    idle: float | None = None,
    timeout: float = TREE_TIMEOUT,
    output: Path | None = None,
    cores: bool = False,
    junit_path: Path | None = None,
    as_json: bool = False,
) -> int:
    """Runs the command, and tells of it as ``flagfinder guard`` does; returns the exit code."""
    command = quote_command(*words)
    hangs: list[Hang] = []
    not_ended: list[LeftProcess] = []

    def hung(found: Hang) -> None:
        # All processes are ended right after.
        hang = replace(found, reports=tuple(one.of_the_dead() for one in found.reports))
        hangs.append(hang)
        for warning in (f"{command} hangs: {hang.because}", *hang.notes):
            terminal.warning(warning)
        if output is not None:
            try:
                use_apart(output, lambda: _write(output, hang, command), timeout)
                terminal.message(f"wrote {output}/why.txt, why.json, why.html")
            except OSError as error:  # the story still goes to the screen
                terminal.warning(f"{output} can't be written: {error.strerror}")
            else:
                if cores:
                    _write_cores(output, hang, timeout, terminal)
        if as_json:
            return
        if on_github():
            terminal.raw(_annotation(hang))
            _summarize(hang, command, terminal)
        if hang.reports:
            from flagfinder.report.why_report import show_why

            with _without_commands(terminal):
                show_why(terminal, hang.reports[:1])

    def left(remaining: list[LeftProcess]) -> None:
        not_ended.extend(remaining)
        for one in remaining:
            terminal.warning(str(one))
        if output is not None and hangs:
            with contextlib.suppress(OSError):  # said above
                text = _all_text(hangs[0], command, remaining)
                use_apart(output, lambda: _write_text(output, text), timeout)

    junit = _Junit(junit_path, command, timeout) if junit_path is not None else None
    try:
        status = guard(
            words,
            after=after,
            idle=idle,
            timeout=timeout,
            hung=hung,
            left=left,
        )
    except FlagfinderError as error:
        if junit is not None:
            junit.failed(error)
        raise
    if junit is not None:
        try:
            junit.ended(status, hangs, not_ended)
        except OSError as error:  # the command's status is told all the same
            terminal.warning(f"{junit_path} can't be written: {error.strerror}")
    if as_json:
        fields: GuardFields = {
            "schema": "flagfinder.guard/1",
            "exit_code": status,
            "hung": bool(hangs),
            "because": hangs[0].because if hangs else None,
            "reports": [report.raw for hang in hangs for report in hang.reports],
            "notes": [
                *(note for hang in hangs for note in hang.notes),
                *(str(one) for one in not_ended),
            ],
            "left": [one.to_raw() for one in not_ended],
        }
        terminal.answer(fields)
    return status


def _fields(hang: Hang) -> WhyFields:
    """The first report, with those of the other processes."""
    first, *others = (report.raw for report in hang.reports)
    return {**first, "others": others}


class _Junit:
    """The file of ``--junit``. It is there before the command starts, and tells of an error until
    the command has ended.
    """

    def __init__(self, path: Path, command: str, limit: float) -> None:
        self._path = path
        self._limit = limit
        self._command = command
        self._begin = time.monotonic()
        self._tell(("error", "ended", "flagfinder was ended before the command", ""))

    def failed(self, error: FlagfinderError) -> None:
        """The command could not be started, or not be ended."""
        self._tell(
            ("error", "flagfinder", str(error), "\n".join((error.what, error.found, error.hint)))
        )

    def ended(self, status: int, hangs: list[Hang], left: list[LeftProcess]) -> None:
        """Tells how the command ended; where it hung, with the story."""
        if hangs:
            self._tell(
                (
                    "failure",
                    "hang",
                    f"it hangs: {hangs[0].because}",
                    _all_text(hangs[0], self._command, left),
                )
            )
        elif status:
            self._tell(("failure", "status", f"exit code {status}", ""))
        else:
            self._tell(None)

    def _tell(self, problem: Problem | None) -> None:
        content = junit_xml(self._command, time.monotonic() - self._begin, problem)
        use_apart(self._path, lambda: write_private(self._path, content), self._limit)


def _write_cores(folder: Path, hang: Hang, limit: float, terminal: Terminal) -> None:
    deadline = Deadline.after(limit)
    written: list[str] = []
    for pid in hang.pids:
        path = folder / f"core.{pid}"
        try:
            notes = ask_apart(_core_of(pid, path), deadline.left)
        except FlagfinderError as error:
            terminal.warning(f"no core file of process {pid}: {error.found}")
            if isinstance(error, LeftBehind):
                # A part would be taken for the whole.
                with contextlib.suppress(OSError):
                    use_apart(path, partial(path.unlink, missing_ok=True), limit)
            continue
        written.append(path.name)
        for note in notes:
            terminal.warning(f"{path.name}: {note}")
    if written:
        terminal.message(f"wrote {count(len(written), 'core file')}: {', '.join(written)}")


def _core_of(pid: int, path: Path) -> Callable[[object], list[str]]:
    return lambda _: _core.write_core(pid, os.fspath(path))


def _all_text(hang: Hang, command: str, left: Sequence[LeftProcess] = ()) -> str:
    parts = [
        f"{command} hangs: {hang.because}",
        *hang.notes,
        *map(str, left),
        *why_texts(hang.reports),
    ]
    return "\n\n".join(parts) + "\n"


def _write(folder: Path, hang: Hang, command: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    _write_text(folder, _all_text(hang, command))
    if hang.reports:
        text = Terminal.json_text(_fields(hang))
        files = {"why.json": text, "why.html": why_page(hang.reports[0], hang.reports[1:])}
        for name, content in files.items():
            write_private(folder / name, content.encode("utf-8", "backslashreplace"))


def _write_text(folder: Path, text: str) -> None:
    write_private(folder / "why.txt", text.encode("utf-8", "backslashreplace"))


@contextlib.contextmanager
def _without_commands(terminal: Terminal) -> Generator[None]:
    """GitHub takes `##[..]` anywhere in a line for a command of the job's, and names of processes
    and files may hold it. It stops to do so until it reads a word that nobody else knows.
    """
    if not on_github():
        yield
        return
    word = secrets.token_hex(16)
    terminal.raw(f"::stop-commands::{word}")
    try:
        yield
    finally:
        terminal.raw(f"::{word}::")


def _annotation(hang: Hang) -> str:
    """One line, as GitHub reads workflow commands: line ends and per cents are written as %XX."""
    first = hang.reports[0] if hang.reports else None
    lines = first.story if first is not None else (hang.because, *hang.notes)
    text = _escaped("\n".join(visible(line) for line in lines), "%\r\n")
    place = _in_repository(first.place) if first is not None else ""
    hangs = str(first.tests[0]) if first is not None and first.tests else "The command"
    return f"::error {place}title={_escaped(visible(hangs), '%,:')} hangs::{text}"


def _escaped(text: str, characters: str) -> str:
    for character in characters:
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def _in_repository(spot: Spot | None) -> str:
    """The place as properties of a command; empty where the repository lacks the file, or its name
    can't be told.
    """
    if spot is None or spot.file is None or spot.line is None:
        return ""
    root = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd())
    path = os.path.normpath(root / spot.file)
    name = os.path.relpath(path, root)
    is_told = visible(name) == name and set(",:%").isdisjoint(name)
    if name.startswith("../") or not is_told or not Path(path).is_file():
        return ""
    return f"file={name},line={spot.line},"


def _summarize(hang: Hang, command: str, terminal: Terminal) -> None:
    """Adds the story to the summary of the job's step."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    text = _all_text(hang, command)
    # A fence is longer than any in the text.
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    try:
        with Path(path).open("a", encoding="utf-8", errors="backslashreplace") as summary:
            summary.write(f"### The command hangs\n{fence}text\n{text}{fence}\n")
    except OSError as error:
        terminal.warning(f"{path} can't be written: {error.strerror}")
