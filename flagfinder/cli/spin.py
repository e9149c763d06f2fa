# SPDX-License-Identifier: MIT
"""``flagfinder spin``: a live process in, what its threads wait for out."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from flagfinder.cli.common import (
    COUNT,
    EXIT_FOUND,
    EXIT_NOTHING_FOUND,
    PID,
    SECONDS,
    VERBS,
    Subparsers,
    add_threads,
    add_timeout,
    add_verb,
)
from flagfinder.live.apart import Told, report_apart
from flagfinder.live.deadline import DEFAULT_BUDGET, DEFAULT_TIMEOUT
from flagfinder.live.spin import DEFAULT_THREADS, SpinReport, spin
from flagfinder.report.terminal import Terminal
from flagfinder.report.units import count

if TYPE_CHECKING:
    from flagfinder.live.fields import SpinFields

_EXAMPLES = """\
  flagfinder spin 4711                all threads: what they poll or wait for
  flagfinder spin 4711 --thread 4713  this thread only
  flagfinder spin 4711 --in-place     step the threads themselves, each for up to 0.8 s
  flagfinder spin 4711 --json > spin.json; flagfinder poke 4711 --flag spin.json#1

Each thread that repeats something stops for a moment and is copied; what it polls is seen in the
copy. Threads that are blocked in the kernel are described. Where a word is named, all threads stop
for a moment, one by one, and copies of them tell who would write it.

A thread itself is single-stepped only where its copy does not do what it does (others change what
it reads, its tasks move), or with --in-place. The others run on; its signals wait until it is let
go.

In a program that CPython runs, the Python code of each thread is shown too, and the expression
that ends its loop.

exit codes: 0 a flag, syscall, lock or Python expression is named; 1 no thread polls anything; 69
no such process, or none that can be stepped; 77 no permission to trace it"""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_verb(
        subparsers,
        "spin",
        VERBS["spin"],
        _EXAMPLES,
        run,
    )
    parser.add_argument("pid", type=PID, help="the process")
    add_threads(parser)
    parser.add_argument(
        "--budget",
        type=SECONDS,
        default=DEFAULT_BUDGET,
        help=f"a thread that is stepped is held for about SECONDS (default {DEFAULT_BUDGET})",
    )
    parser.add_argument(
        "--most",
        type=COUNT,
        default=DEFAULT_THREADS,
        help=f"look at most at so many threads (default {DEFAULT_THREADS})",
    )
    parser.add_argument(
        "--in-place", action="store_true", help="step the threads themselves, not copies of them"
    )
    parser.needs(
        "--most", "chooses among all threads, and --thread names them", lambda o: not o.thread
    )
    add_timeout(parser, DEFAULT_TIMEOUT)
    parser.add_argument("--explain", action="store_true", help="show the reasoning step by step")


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    def told(threads: int, stepped: list[int]) -> None:
        process = f"process {options.pid}, {count(threads, 'thread')}"
        listed = ", ".join(map(str, stepped))
        how = f"looking at copies of {listed}"
        if options.in_place:
            how = f"stepping {listed}, each paused for about {options.budget:g} s"
        how = how if stepped else "none repeats anything, none is touched"
        terminal.message(f"{process}: {how}")

    def question(so_far: Callable[[str], object], told: Told) -> SpinFields:
        return spin(
            options.pid,
            options.thread,
            budget=options.budget,
            most=options.most,
            in_place=options.in_place,
            timeout=options.timeout,
            told=told,
            so_far=so_far,
        ).raw

    return ask_and_show(question, told, options, terminal)


def ask_and_show(
    question: Callable[[Callable[[str], object], Told], SpinFields],
    told: Told | None,
    options: argparse.Namespace,
    terminal: Terminal,
) -> int:
    """Asks in a child, shows the report, and returns the exit code."""

    def meanwhile() -> None:
        if not options.json:
            import flagfinder.report.spin_report  # noqa: F401

    report = SpinReport.from_raw(report_apart(question, options.timeout, told, meanwhile))
    if options.json:
        terminal.answer(report.raw)
    else:
        from flagfinder.report.spin_report import show_spin

        show_spin(terminal, report, options.explain)
    return EXIT_FOUND if report.found else EXIT_NOTHING_FOUND
