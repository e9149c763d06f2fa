# SPDX-License-Identifier: MIT
"""``flagfinder discover``: one recording in, its data flags out."""

from __future__ import annotations

import argparse
from pathlib import Path

from flagfinder.cli.common import EXIT_FOUND, EXIT_NOTHING_FOUND, VERBS, Subparsers, add_verb
from flagfinder.cli.diff import Steps
from flagfinder.flags.discover import discover
from flagfinder.report.terminal import Terminal
from flagfinder.shared.errors import UsageError
from flagfinder.trace.trace import open_trace

_EXAMPLES = """\
  flagfinder record -o run.trace -- ./app && flagfinder discover run.trace
  flagfinder discover --json run.trace > flags.json
  flagfinder watch --pid 4711 --flag flags.json#1

exit codes: 0 a flag was found; 1 none was; 65 the trace is unreadable"""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_verb(subparsers, "discover", VERBS["discover"], _EXAMPLES, run)
    parser.add_argument("trace", type=Path, metavar="TRACE", help="a run that went well")


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    with terminal.progress() as progress:
        progress.update("reading the trace")
        trace = open_trace(options.trace)
        if trace.level != "values":
            raise UsageError(
                f"{options.trace} can't tell which words were polled",
                "it holds no values, only flow",
                "Record again with `flagfinder record --level values`.",
            )
        if not trace.is_complete:
            terminal.warning(f"{trace.path} was not closed in order; what was recorded is used")
        found = discover(trace, Steps(progress.update).show)
    if options.json:
        terminal.answer(found.raw)
    else:
        from flagfinder.report.discover_report import show_discovery

        show_discovery(terminal, found)
    return EXIT_FOUND if found.flags else EXIT_NOTHING_FOUND
