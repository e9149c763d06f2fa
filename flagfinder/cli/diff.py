# SPDX-License-Identifier: MIT
"""``flagfinder diff``: two recordings in, the flag out."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from flagfinder.cli.common import EXIT_FOUND, EXIT_NOTHING_FOUND, TID, VERBS, Subparsers, add_verb
from flagfinder.diff.diff import Divergence, diff
from flagfinder.flags.flags import Report, find_flags
from flagfinder.report.debuggers import DEBUGGERS, script
from flagfinder.report.terminal import Terminal
from flagfinder.report.units import duration
from flagfinder.shared.errors import UsageError
from flagfinder.trace.trace import Trace, open_trace

_LISTED = 20  # threads that an error names

_EXAMPLES = """\
  flagfinder diff normal.trace spin.trace
  flagfinder diff normal.trace spin.trace --explain
  flagfinder diff normal.trace spin.trace --normal another-good-run.trace
  flagfinder diff normal.trace spin.trace --thread 4713
  flagfinder diff --json normal.trace spin.trace | jq '.flags[0].name'
  flagfinder diff normal.trace spin.trace --emit gdb > stop.py; gdb -x stop.py --args ./app spin

exit codes: 0 a flag, syscall, lock or Python expression is named; 1 no flag or no divergence; 65 a
trace is unreadable"""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_verb(
        subparsers,
        "diff",
        VERBS["diff"],
        _EXAMPLES,
        run,
    )
    parser.add_argument("normal_trace", type=Path, metavar="NORMAL", help="a run that went well")
    parser.add_argument("spin_trace", type=Path, metavar="SPIN", help="the run that spins")
    parser.add_argument(
        "--normal",
        dest="more_normals",
        type=Path,
        action="append",
        metavar="TRACE",
        help="another good run: what also differs between good runs is noise (repeatable)",
    )
    parser.add_argument(
        "--thread",
        type=TID,
        help="answer about this thread of the spin run (default: the one that tells most)",
    )
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--explain", action="store_true", help="show the reasoning step by step")
    shown.add_argument(
        "--emit",
        choices=DEBUGGERS,
        help="print a script instead, with which the debugger stops where the runs part and "
        "watches the flag",
    )
    parser.needs("--emit", "prints a script, not JSON", lambda o: not (o.json or o.json_file))


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    normals = [options.normal_trace, *options.more_normals]
    report, spin, divergence = compare(terminal, normals, options.spin_trace, options.thread)
    if options.emit:
        terminal.raw(script(options.emit, report, spin, divergence))
        return EXIT_FOUND
    return show(terminal, report, normals, spin, options.json, options.explain)


def compare(
    terminal: Terminal, normal_paths: list[Path], spin_path: Path, thread: int | None = None
) -> tuple[Report, Trace, Divergence]:
    """Opens the traces, aligns them and looks for the flag, of ``thread`` if one is named, with
    progress.
    """
    with terminal.progress() as progress:
        progress.update("reading the traces")
        spin = open_trace(spin_path)
        check_thread(spin, thread)
        normals = [open_trace(path) for path in normal_paths]
        for trace in (*normals, spin):
            if not trace.is_complete:
                terminal.warning(f"{trace.path} was not closed in order; what was recorded is used")

        steps = Steps(progress.update)
        divergence = diff(normals[0], spin, normals[1:], steps.show, thread)
        progress.update("looking for the flag")
        return find_flags(spin, normals, divergence, thread, steps.show), spin, divergence


class Steps:
    """Tells how far each step is, and how long it still takes at the speed that it had so far."""

    def __init__(
        self, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tell = tell
        self._clock = clock
        self._began = 0.0

    def show(self, stage: str, done: int, total: int) -> None:
        """Called by the engine: blocks done in this step, and about how many it has (0: not
        known).
        """
        if done == 0:
            self._began = self._clock()
        if total == 0:
            self._tell(f"{stage}, {done:,} blocks")
            return
        # The number of blocks is an estimate.
        share = min(done / total, 0.99)
        passed = self._clock() - self._began
        left = (
            f", {duration(round(passed * (1 / share - 1) * 1e9))} left"
            if share > 0.02 and passed > 1
            else ""
        )
        self._tell(f"{stage}, {int(share * 100)} %{left}")


def check_thread(spin: Trace, tid: int | None) -> None:
    """Raises UsageError for a thread that the trace doesn't hold."""
    names = {thread.tid: thread.name for thread in spin.threads}
    if tid is None or tid in names:
        return
    known = [
        f"{number} ({name})" if name else str(number) for number, name in sorted(names.items())
    ]
    more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    raise UsageError(
        f"There is no thread {tid} to answer about",
        f"{spin.path} has {', '.join(known[:_LISTED]) or 'no threads'}{more}",
        "Name one of these; `flagfinder trace info` shows them all." if known else "Record again.",
    )


def show(
    terminal: Terminal,
    report: Report,
    normal_paths: list[Path],
    spin: Trace | None,
    as_json: bool,
    explain: bool,
) -> int:
    """Prints the report and says what to run next; returns the exit code."""
    is_named = report.verdict in ("data-flag", "syscall-loop", "lock")
    found = is_named or report.waits_until is not None
    if as_json:
        terminal.answer(report.raw)
    else:
        from flagfinder.report.diff_report import show_report

        show_report(terminal, report, explain)
        if spin is None:
            pass  # nothing was recorded that could be looked into
        elif report.divergence is not None and spin.level == "values":
            terminal.next_command(
                "flagfinder", "registers", spin.path, "--before-divergence", normal_paths[0]
            )
        elif not explain:
            terminal.next_command("flagfinder", "diff", *normal_paths[:1], spin.path, "--explain")
    return EXIT_FOUND if found else EXIT_NOTHING_FOUND
