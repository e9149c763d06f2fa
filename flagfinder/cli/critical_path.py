# SPDX-License-Identifier: MIT
"""``flagfinder critical-path``: what made up the time of a thread."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from flagfinder.cli.common import (
    COUNT,
    EXIT_FOUND,
    EXIT_NOTHING_FOUND,
    NS,
    TID,
    VERBS,
    Subparsers,
    add_host,
    add_verb,
    print_json,
    refuse_backwards,
)
from flagfinder.graph.critical_path import critical_path
from flagfinder.graph.graph import open_graph
from flagfinder.report.terminal import Terminal

if TYPE_CHECKING:
    from flagfinder.graph.path_fields import NoCriticalPathFields

_EXAMPLES = """\
  flagfinder critical-path run.graph --thread 4711
  flagfinder critical-path run.graph --thread 4711 --from 123456000000 --to 123789000000 --json

Locks are told from conditions by their stacks: record with --stacks library or --stacks all.
exit codes: 0 found, 1 no such thread, 2 failure, 65 no graph"""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_verb(
        subparsers,
        "critical-path",
        VERBS["critical-path"],
        _EXAMPLES,
        run,
    )
    parser.add_argument("file", type=Path, metavar="GRAPH")
    parser.add_argument("--thread", type=TID, required=True, help="the thread whose time it is")
    add_host(parser)
    parser.add_argument("--from", dest="start", type=NS, help="from this time on")
    parser.add_argument("--to", dest="end", type=NS, help="up to this time")
    parser.add_argument("--limit", type=COUNT, default=10, help="waits shown at most (default 10)")
    parser.needs("--limit", "is for the screen, JSON has the longest 100,000", lambda o: not o.json)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    refuse_backwards(options.start, options.end)
    span = (options.thread, options.start, options.end)
    shown = {} if options.json else {"most": options.limit}
    found = critical_path(open_graph(options.file), *span, host=options.host, **shown)
    if found is None:
        if options.json:
            nothing: NoCriticalPathFields = {
                "tid": None,
                "segments": [],
                "waits": [],
                "threads": [],
            }
            print_json(terminal, "critical-path", nothing)
        else:
            terminal.result(f"there is no thread {options.thread} in {options.file}")
        return EXIT_NOTHING_FOUND
    if options.json:
        print_json(terminal, "critical-path", found.raw)
    else:
        from flagfinder.report.graph_report import show_critical_path

        show_critical_path(terminal, found, options.limit)
    return EXIT_FOUND
