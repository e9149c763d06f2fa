"""``flagfinder overhead``: what recording costs a program."""

from __future__ import annotations

import argparse
import statistics
from dataclasses import asdict

from flagfinder.cli.common import EXIT_FOUND, EXIT_NOTHING_FOUND, Subparsers, add_verb, print_json
from flagfinder.errors import UsageError
from flagfinder.events import STACK_MODES, SYSCALLS, EventOptions
from flagfinder.overhead import measure_overhead
from flagfinder.report.terminal import Terminal
from flagfinder.report.units import count, duration

_EXAMPLES = """\
  flagfinder overhead -- ./app --benchmark
  flagfinder overhead --rounds 20 --syscalls target --stacks application -- ./app

The program must end by itself and take about as long each time; a second or more tells most.
exit codes: 0 a difference is proven, 1 none is, 2 failure, 69 unavailable, 77 no permission"""


def add_parser(subparsers: Subparsers) -> None:
    """Adds the verb."""
    parser = add_verb(subparsers, "overhead", "What `events record` costs a program.", _EXAMPLES, run)
    parser.add_argument("--rounds", type=int, default=10, metavar="N", help="runs of each sort (default 10)")
    parser.add_argument("--syscalls", choices=SYSCALLS, default="lazy", help="as for `events record` (default lazy)")
    parser.add_argument("--stacks", choices=STACK_MODES, default="off", help="as for `events record` (default off)")


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Runs the verb."""
    if not options.command:
        raise UsageError("There is nothing to measure", "no program", "Write `flagfinder overhead -- PROGRAM ARGS`.")
    chosen = EventOptions(syscalls=options.syscalls, stacks=options.stacks)
    with terminal.progress() as line:

        def show(number: int) -> None:
            line.update(f"round {number} of {options.rounds}" if number else "warming up")

        found = measure_overhead(options.command, chosen, options.rounds, show)
    if options.json:
        print_json(terminal, "overhead", {"command": options.command, "proven": found.proven, **asdict(found)})
    else:
        for label, seconds in (("without", found.plain), ("with", found.recorded)):
            terminal.result(f"{label:<8} {duration(round(statistics.median(seconds) * 1e9))} (median)")
        numbers = f"{100 * found.overhead:+.1f}% ({100 * found.low:+.1f}% to {100 * found.high:+.1f}%, 95% confidence)"
        terminal.result(f"overhead {numbers}" if found.proven else f"no difference proven: {numbers}")
        terminal.result(f"recorded {count(found.events, 'event')} in {options.rounds} runs, {found.lost:,} lost")
    return EXIT_FOUND if found.proven else EXIT_NOTHING_FOUND
