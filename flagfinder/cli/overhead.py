# SPDX-License-Identifier: MIT
"""``flagfinder overhead``: what recording costs a program."""

from __future__ import annotations

import argparse
import statistics
from typing import TYPE_CHECKING

from flagfinder.cli.common import (
    COUNT,
    EXIT_FOUND,
    EXIT_NOTHING_FOUND,
    VERBS,
    Subparsers,
    add_environment,
    add_verb,
    print_json,
)
from flagfinder.graph.events import STACK_MODES, SYSCALLS, EventOptions
from flagfinder.graph.overhead import measure_overhead
from flagfinder.report.terminal import Terminal
from flagfinder.report.units import count, duration
from flagfinder.shared.errors import UsageError

if TYPE_CHECKING:
    from flagfinder.graph.event_fields import OverheadFields

_EXAMPLES = """\
  flagfinder overhead -- ./app --benchmark
  flagfinder overhead --rounds 20 --syscalls target --stacks application -- ./app

The program must end by itself and take about as long each time; a second or more tells most.
exit codes: 0 a difference is proven, 1 none is, 2 failure, 69 unavailable, 77 no permission"""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_verb(
        subparsers,
        "overhead",
        VERBS["overhead"],
        _EXAMPLES,
        run,
        usage="flagfinder overhead [options] -- PROGRAM [ARGS...]",
    )
    parser.add_argument("--rounds", type=COUNT, default=10, help="runs of each sort (default 10)")
    parser.add_argument(
        "--syscalls", choices=SYSCALLS, default="lazy", help="as for `events record` (default lazy)"
    )
    parser.add_argument(
        "--stacks", choices=STACK_MODES, default="off", help="as for `events record` (default off)"
    )
    add_environment(parser)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    if not options.command:
        raise UsageError(
            "There is nothing to measure",
            "no program",
            "Write `flagfinder overhead -- PROGRAM ARGS`.",
        )
    chosen = EventOptions(syscalls=options.syscalls, stacks=options.stacks)
    with terminal.progress() as line:

        def show(number: int) -> None:
            line.update(f"round {number} of {options.rounds}" if number else "warming up")

        found = measure_overhead(options.command, chosen, options.rounds, show, options.env)
    if options.json:
        fields: OverheadFields = {
            "command": options.command,
            "proven": found.proven,
            "plain": list(found.plain),
            "recorded": list(found.recorded),
            "overhead": found.overhead,
            "low": found.low,
            "high": found.high,
            "events": found.events,
            "lost": found.lost,
        }
        print_json(terminal, "overhead", fields)
    else:
        for label, seconds in (("without", found.plain), ("with", found.recorded)):
            terminal.result(
                f"{label:<8} {duration(round(statistics.median(seconds) * 1e9))} (median)"
            )
        numbers = (
            f"{100 * found.overhead:+.1f}% ({100 * found.low:+.1f}% to "
            f"{100 * found.high:+.1f}%, 95% confidence)"
        )
        terminal.result(
            f"overhead {numbers}" if found.proven else f"no difference proven: {numbers}"
        )
        terminal.result(
            f"recorded {count(found.events, 'event')} in {options.rounds} runs, {found.lost:,} lost"
        )
    return EXIT_FOUND if found.proven else EXIT_NOTHING_FOUND
