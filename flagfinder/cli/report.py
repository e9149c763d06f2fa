# SPDX-License-Identifier: MIT
"""``flagfinder report``: a diagnosis as one self-contained HTML page."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from flagfinder.cli.common import (
    EXIT_FOUND,
    EXIT_NOTHING_FOUND,
    VERBS,
    Subparsers,
    add_hang,
    add_verb,
    print_json,
)
from flagfinder.cli.diagnose import nothing_found
from flagfinder.graph.diagnose import diagnose
from flagfinder.graph.graph import open_graph
from flagfinder.report.terminal import Terminal
from flagfinder.shared.private_file import write_private

if TYPE_CHECKING:
    from flagfinder.graph.diagnosis_fields import ReportFields

_EXAMPLES = """\
  flagfinder report run.graph -o report.html
  flagfinder report run.graph -o report.html --thread 4711 --at 123456789012

The page needs nothing else and can be mailed. Call sites are in it when they were recorded
(--stacks all). exit codes: 0 written, 1 there is no hang, 2 failure, 65 no graph"""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_verb(
        subparsers,
        "report",
        VERBS["report"],
        _EXAMPLES,
        run,
    )
    parser.add_argument("file", type=Path, metavar="GRAPH")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the page to write")
    add_hang(parser)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    graph = open_graph(options.file)
    found = diagnose(graph, options.thread, options.at)
    if found is None:
        if options.json:
            nothing: ReportFields = {"file": None, "class": None}
            print_json(terminal, "report", nothing)
            return EXIT_NOTHING_FOUND
        terminal.warning(nothing_found(graph, options.thread))
        return EXIT_NOTHING_FOUND
    from flagfinder.report.hang_page import hang_page

    page = hang_page(graph, found).encode()
    write_private(options.output, page)
    if options.json:
        fields: ReportFields = {"file": str(options.output), "class": found.hang_class}
        print_json(terminal, "report", fields)
    else:
        terminal.message(f"wrote {options.output}")
    return EXIT_FOUND
