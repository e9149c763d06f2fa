"""``flagfinder diagnose``: who is to blame for a hang."""

from __future__ import annotations

import argparse
from pathlib import Path

from flagfinder.cli.common import EXIT_FOUND, EXIT_NOTHING_FOUND, Subparsers, add_verb, print_json
from flagfinder.diagnose import diagnose
from flagfinder.graph import open_graph
from flagfinder.report.graph_report import show_diagnosis
from flagfinder.report.terminal import Terminal

_EXAMPLES = """\
  flagfinder diagnose run.graph --auto
  flagfinder diagnose run.graph --auto --thread 4711 --at 123456789012 --json

exit codes: 0 a hang was explained, 1 there is none, 2 failure, 65 no graph"""


def add_parser(subparsers: Subparsers) -> None:
    """Adds the verb."""
    parser = add_verb(subparsers, "diagnose", "Name the thread that is to blame for a hang.", _EXAMPLES, run)
    parser.add_argument("file", type=Path, metavar="GRAPH")
    parser.add_argument("--auto", action="store_true", help="answer every question by rule (there is no other way yet)")
    parser.add_argument("--thread", type=int, metavar="TID", help="the thread that hung (default: the main thread)")
    parser.add_argument("--at", type=int, metavar="NS", help="when (default: the last mark, or what was most unusual)")


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Runs the verb."""
    found = diagnose(open_graph(options.file), options.thread, options.at)
    if found is None:
        if options.json:
            print_json(terminal, "diagnose", {"class": None, "culprits": [], "path": [], "questions": 0})
        else:
            terminal.result("no hang: no thread ran or waited for a millisecond, or there is no such thread")
        return EXIT_NOTHING_FOUND
    if options.json:
        print_json(terminal, "diagnose", found.raw)
    else:
        show_diagnosis(terminal, found)
    return EXIT_FOUND
