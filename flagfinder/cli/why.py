# SPDX-License-Identifier: MIT
"""``flagfinder why``: a live process, or two recordings, in; who keeps it and why out."""

from __future__ import annotations

import argparse
from pathlib import Path

from flagfinder.cli.common import EXIT_FOUND, EXIT_NOTHING_FOUND, PID, SECONDS, TID, Subparsers, add_verb
from flagfinder.cli.diff import check_thread
from flagfinder.live.spin import DEFAULT_BUDGET
from flagfinder.live.why import WhyReport, why, why_recorded
from flagfinder.report.terminal import Terminal
from flagfinder.report.units import count
from flagfinder.report.why_page import why_page
from flagfinder.report.why_report import show_why
from flagfinder.shared.errors import UsageError
from flagfinder.shared.private_file import create_private
from flagfinder.trace.trace import open_trace

_EXAMPLES = """\
  flagfinder why 4711                  who owes what the process waits for, to the end of the chain
  flagfinder why 4711 --thread 4713    begin with this thread
  flagfinder why 4711 --html why.html  a page with a drawing of the threads and processes
  flagfinder why 4711 --json           links, root and evidence for other programs
  flagfinder why normal.trace spin.trace   the same of a recorded run, compared with one that went well

The chain is followed through locks, polled words, pipes, sockets, file locks and children, into other processes. Each
link says how it is known: [seen] in the kernel or in memory, [proved] in a copy of the thread, [by code] of the
program, or [assumed]. Only threads that poll are stepped, as `flagfinder spin` does it; root sees more processes.
Of recordings, each thread that owes is followed to the branch at which it left the good run's way, and to the value
behind that branch.

exit codes: 0 the end of the chain is known; 1 it is not; 65 a recording is unreadable;
69 no such process, or none that can be looked at; 77 no permission to look at it"""


def add_parser(subparsers: Subparsers) -> None:
    """Adds the verb."""
    parser = add_verb(
        subparsers, "why", "Say who keeps a process, live or recorded, from going on, and why.", _EXAMPLES, run
    )
    parser.add_argument(
        "target",
        nargs="+",
        metavar="PID | NORMAL SPIN",
        help="the process, or a recording of a good run and the bad one",
    )
    parser.add_argument(
        "--thread", type=TID, metavar="TID", help="begin with this thread (default: one that polls, or the first)"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write a page that draws the chain")
    parser.add_argument(
        "--budget",
        type=SECONDS,
        default=DEFAULT_BUDGET,
        metavar="SECONDS",
        help=f"hold each stepped thread for about SECONDS (default {DEFAULT_BUDGET})",
    )
    parser.needs(
        "--budget", "is about threads that are stepped, and recordings have none", lambda o: len(o.target) == 1
    )


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Runs the verb."""

    def told(_: int, stepped: list[int]) -> None:
        if stepped:
            listed = ", ".join(str(tid) for tid in stepped)
            terminal.message(f"stepping {count(len(stepped), 'thread')}: {listed}")

    report = (
        _recorded(options, terminal)
        if len(options.target) > 1
        else why(_pid(options.target[0]), options.thread, budget=options.budget, told=told)
    )
    if options.html is not None:
        with create_private(options.html) as file:
            file.write(why_page(report).encode("utf-8", "backslashreplace"))
        terminal.message(f"wrote {options.html}")
    if options.json:
        terminal.answer(report.raw)
    else:
        show_why(terminal, report)
    return EXIT_FOUND if report.found else EXIT_NOTHING_FOUND


def _pid(word: str) -> int:
    try:
        return PID(word) or 0
    except argparse.ArgumentTypeError as error:
        raise UsageError(
            f"{word} is no process", str(error), "Give a process id, or two recordings: `flagfinder why NORMAL SPIN`."
        ) from error


def _recorded(options: argparse.Namespace, terminal: Terminal) -> WhyReport:
    if len(options.target) > 2:
        raise UsageError(
            "Two recordings are compared",
            f"{len(options.target)} were given",
            "Give one of a good run and one of the bad one: `flagfinder why NORMAL SPIN`.",
        )
    normal, spin = (open_trace(Path(word)) for word in options.target)
    check_thread(spin, options.thread)
    with terminal.progress() as progress:
        progress.update("following what the run waits for")
        return why_recorded(normal, spin, options.thread)
