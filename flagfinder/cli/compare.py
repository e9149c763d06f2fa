# SPDX-License-Identifier: MIT
"""``flagfinder compare``: system calls by user code, good against bad."""

from __future__ import annotations

import argparse
from pathlib import Path

from flagfinder.cli.common import (
    COUNT,
    EXIT_FOUND,
    EXIT_NOTHING_FOUND,
    VERBS,
    Subparsers,
    add_verb,
    print_json,
)
from flagfinder.graph.call_plot import plot_comparison
from flagfinder.graph.compare import compare_events
from flagfinder.report.compare_report import comparison_fields, show_comparison
from flagfinder.report.terminal import Terminal

_EXAMPLES = """\
  flagfinder compare good.events bad.events
  flagfinder compare good.events bad.events --plot calls.svg

Record both alike: --syscalls target counts all calls, --stacks application names the code that
makes them. exit codes: 0 compared, 1 no calls in either, 2 failure, 65 no recording, 69 --plot
without matplotlib"""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_verb(
        subparsers,
        "compare",
        VERBS["compare"],
        _EXAMPLES,
        run,
    )
    parser.add_argument("good", type=Path, metavar="GOOD", help="a recording of events")
    parser.add_argument("bad", type=Path, metavar="BAD", help="another")
    parser.add_argument("--limit", type=COUNT, default=20, help="rows at most (default 20)")
    parser.needs(
        "--limit",
        "is for the screen and --plot, JSON has all rows",
        lambda o: not o.json or o.plot,
    )
    parser.add_argument(
        "--plot", type=Path, help="draw them, as .svg, .png or .pdf; needs matplotlib"
    )


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    found = compare_events(options.good, options.bad)
    rows = found.rows[: options.limit]
    if options.json:
        print_json(terminal, "compare", comparison_fields(found))
    else:
        show_comparison(terminal, found, options.limit)
    if options.plot:
        plot_comparison(rows, options.plot)
    return EXIT_FOUND if rows else EXIT_NOTHING_FOUND
