# SPDX-License-Identifier: MIT
"""``flagfinder events top``: blocked time and delays, summed up."""

from __future__ import annotations

import argparse
from pathlib import Path

from flagfinder.cli.common import (
    COUNT,
    EXIT_FOUND,
    EXIT_INTERRUPTED,
    EXIT_NOTHING_FOUND,
    PID,
    SECONDS,
    TID,
    Parser,
    Size,
    Subparsers,
    add_environment,
    add_verb,
    print_json,
)
from flagfinder.graph.top import Top, count_events, top_of_file
from flagfinder.graph.top_question import TopQuestion
from flagfinder.report.terminal import Terminal
from flagfinder.report.top_report import show_top, top_fields
from flagfinder.shared.errors import UsageError

_SUMMARY = (
    "Sum up how long threads were blocked, where, and how long they were ready without a processor."
)
_EXAMPLES = """\
  flagfinder events top -- ./app
  flagfinder events top --pid 4711 --duration 10 --min-wait 10ms
  flagfinder events top --all --duration 5 --threads 'kworker*'
  flagfinder events top --pid 4711 --call futex --errno ETIMEDOUT
  flagfinder events top run.events --json | jq '.delays[0]'

Without a FILE the kernel counts, which needs CAP_BPF and CAP_PERFMON. A thread is blocked until
it is woken; from then on it is ready until it runs, also where it was preempted. A wait that
began before the counting is not known.
exit codes: 0 counted; the program's own; 1 nothing waited so long; 2, 65, 69, 77 failure; 130
Ctrl-C"""


def add_top(actions: Subparsers) -> None:
    top: Parser = add_verb(
        actions,
        "top",
        _SUMMARY,
        _EXAMPLES,
        _run,
        usage="flagfinder events top [options] [FILE | -- PROGRAM [ARGS...]]",
    )
    top.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        nargs="?",
        help="a recording, instead of what happens now",
    )
    top.add_argument("--pid", type=PID, action="append", help="a process (repeatable)")
    top.add_argument(
        "--all", action="store_true", help="all processes; stacks are those of the program or --pid"
    )
    top.add_argument("--duration", type=SECONDS, help="stop after SECONDS")
    top.add_argument(
        "--min-wait",
        type=SECONDS,
        default=0.0,
        metavar="TIME",
        help="count waits and delays from TIME on, as in 10ms",
    )
    top.add_argument(
        "--threads",
        action="append",
        metavar="PATTERN",
        help="only threads with such names (repeatable)",
    )
    top.add_argument("--tid", type=TID, help="only this thread")
    top.add_argument(
        "--call", action="append", metavar="NAME", help="only waits in this call (repeatable)"
    )
    top.add_argument(
        "--errno", metavar="NAME", help="only waits whose call returned this error, as in ETIMEDOUT"
    )
    top.add_argument(
        "--errors",
        action="store_true",
        help="tell waits apart by the error that their call returned",
    )
    top.add_argument(
        "--no-stacks", action="store_true", help="without the places where threads block"
    )
    top.add_argument(
        "--stack-copy",
        type=Size(2**14),
        default=0,
        help="copy so much of each different stack, for unwind tables",
    )
    top.add_argument(
        "--limit", type=COUNT, default=10, help="rows of each table at most (default 10)"
    )
    add_environment(top)
    top.needs("--limit", "is for the screen, JSON has all rows", lambda o: not o.json)
    for option in ("--all", "--stack-copy", "--duration"):
        top.needs(option, "is for what happens now, and a FILE was given", lambda o: o.file is None)
    top.needs("--env", "is for a program, and there is none", lambda o: bool(o.command))


def _run(options: argparse.Namespace, terminal: Terminal) -> int:
    question = TopQuestion(
        least=options.min_wait,
        threads=tuple(options.threads),
        tid=options.tid,
        calls=tuple(options.call),
        error=options.errno,
        results=options.errors,
        stacks=not options.no_stacks,
        stack_copy=options.stack_copy,
    )
    top = _count(options, question)
    if options.json:
        print_json(terminal, "events-top", top_fields(top))
    else:
        show_top(terminal, top, options.limit)
    if top.exit_status is not None:
        return top.exit_status
    if top.ended == "interrupted":
        return EXIT_INTERRUPTED
    found = top.fields["waits"] or top.fields["delays"] or top.fields["earlier"]
    return EXIT_FOUND if found else EXIT_NOTHING_FOUND


def _count(options: argparse.Namespace, question: TopQuestion) -> Top:
    if options.file is None:
        if not (options.command or options.pid or options.all):
            raise UsageError(
                "There is nothing to count",
                "no FILE, no program, no --pid, no --all",
                "Write `-- PROGRAM`, --pid PID, --all, or the name of a recording.",
            )
        return count_events(
            options.command or [],
            options.pid,
            question,
            everything=options.all,
            duration=options.duration,
            environment=options.env,
        )
    if options.command:
        raise UsageError(
            "There are two things to count", f"{options.file} and a program", "Name one of them."
        )
    return top_of_file(options.file, question, options.pid)
