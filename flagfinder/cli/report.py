"""``flagfinder report``: a diagnosis as one self-contained HTML page."""

from __future__ import annotations

import argparse
from pathlib import Path

from flagfinder.cli.common import EXIT_FOUND, EXIT_NOTHING_FOUND, Subparsers, add_verb, print_json
from flagfinder.diagnose import diagnose
from flagfinder.graph import open_graph
from flagfinder.report.hang_page import hang_page
from flagfinder.report.terminal import Terminal

_EXAMPLES = """\
  flagfinder report run.graph -o report.html
  flagfinder report run.graph -o report.html --thread 4711 --at 123456789012

The page needs nothing else and can be mailed. Call sites are in it when they were recorded (--stacks all).
exit codes: 0 written, 1 there is no hang, 2 failure, 65 no graph"""


def add_parser(subparsers: Subparsers) -> None:
    """Adds the verb."""
    parser = add_verb(subparsers, "report", "The story of a hang as one HTML page, with a timeline.", _EXAMPLES, run)
    parser.add_argument("file", type=Path, metavar="GRAPH")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", required=True, help="the page to write")
    parser.add_argument("--thread", type=int, metavar="TID", help="the thread that hung (default: the main thread)")
    parser.add_argument("--at", type=int, metavar="NS", help="when (default: the last mark, or what was most unusual)")


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Runs the verb."""
    graph = open_graph(options.file)
    found = diagnose(graph, options.thread, options.at)
    if found is None:
        terminal.warning("no hang: no thread ran or waited for a millisecond, or there is no such thread")
        return EXIT_NOTHING_FOUND
    options.output.write_text(hang_page(graph, found), encoding="utf-8")
    if options.json:
        print_json(terminal, "report", {"file": str(options.output), "class": found.hang_class})
    else:
        terminal.message(f"wrote {options.output}")
    return EXIT_FOUND
