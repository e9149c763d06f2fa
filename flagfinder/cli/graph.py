# SPDX-License-Identifier: MIT
"""``flagfinder graph build|info|query|bottleneck|export``: the event graph."""

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
    Parser,
    Subparsers,
    add_export,
    add_verb,
    print_json,
    refuse_backwards,
)
from flagfinder.graph.export import FORMATS, export_graph
from flagfinder.graph.graph import SORT_KEYS, build_graph, open_graph
from flagfinder.report.terminal import Terminal
from flagfinder.shared.errors import UsageError

if TYPE_CHECKING:
    from flagfinder.graph.fields import GraphBuildFields, GraphExportFields, GraphQueryFields
    from flagfinder.graph.path_fields import NoBottleneckFields

_SUMMARY = VERBS["graph"]


def add_parser(subparsers: Subparsers) -> None:
    parser: Parser = subparsers.add_parser(
        "graph",
        help=_SUMMARY,
        description=_SUMMARY,
        epilog="examples:\n  flagfinder graph build run.events -o run.graph\n  flagfinder graph "
        "info run.graph",
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True, parser_class=Parser)
    build = add_verb(
        actions,
        "build",
        "Build the graph of a recording, or of those of several hosts.",
        "  flagfinder graph build run.events -o run.graph\n"
        "  flagfinder graph build client.events server.events -o both.graph\n"
        "  flagfinder graph build run.events --flags watch.jsonl -o run.graph",
        _build,
    )
    build.add_argument(
        "files",
        type=Path,
        nargs="+",
        metavar="EVENTS",
        help="what `flagfinder events record` wrote; of several hosts, with --network",
    )
    build.add_argument("-o", "--output", type=Path, help="the graph to write")
    build.add_argument(
        "--flags",
        type=Path,
        action="append",
        metavar="JSONL",
        help="what `flagfinder watch -o` wrote",
    )
    info = add_verb(
        actions,
        "info",
        "Vertices, edges by kind, gaps.",
        "  flagfinder graph info run.graph",
        _info,
    )
    query = add_verb(
        actions,
        "query",
        "Show the vertices of a thread, and what made them begin.",
        "  flagfinder graph query run.graph --tid 4711 --limit 20\n"
        "  flagfinder graph query run.graph --name 'pool-*' --sort wait --limit 5",
        _query,
    )
    bottleneck = add_verb(
        actions,
        "bottleneck",
        "What threads wait for in the end, and how much of their time would be gained at most.",
        "  flagfinder graph bottleneck run.graph\n"
        "  flagfinder graph bottleneck run.graph --name 'worker-*'",
        _bottleneck,
    )
    export = add_verb(
        actions,
        "export",
        "Write the graph for other tools: the Perfetto UI, GraphML, Parquet.",
        "  flagfinder graph export run.graph -o run.perfetto-trace     open it in ui.perfetto.dev\n"
        "  flagfinder graph export run.graph -o run.graphml\n"
        "  flagfinder graph export run.graph -o run.parquet            a folder of tables; needs "
        "pyarrow",
        _export,
    )
    add_export(export, FORMATS)
    for action in (info, query, bottleneck, export):
        action.add_argument("file", type=Path, metavar="GRAPH")
    query.add_argument("--tid", type=TID, help="this thread only")
    query.add_argument(
        "--name", metavar="PATTERN", help="only threads with such names, as in 'pool-*'"
    )
    query.add_argument(
        "--sort",
        choices=SORT_KEYS,
        default="start",
        help="the earliest first (default), the longest, the longest on a CPU, those that end in "
        "the longest wait, or those that woke most others",
    )
    bottleneck.add_argument(
        "--name",
        metavar="PATTERN",
        help="whose time it is, as in 'pool-*' (default: the main thread)",
    )
    for action in (query, bottleneck):
        action.add_argument("--from", dest="start", type=NS, default=0, help="from this time on")
        action.add_argument("--to", dest="end", type=NS, default=NS.high, help="up to this time")
    query.add_argument("--limit", type=COUNT, default=100, help="vertices at most (default 100)")


def _build(options: argparse.Namespace, terminal: Terminal) -> int:
    if options.output is None:
        raise UsageError("There is no file to write the graph to", "-o is missing", "Add -o FILE.")
    graph = build_graph(options.files, options.flags)
    graph.save(options.output)
    summary = graph.summary()
    if options.json:
        fields: GraphBuildFields = {"file": str(options.output), **summary}
        print_json(terminal, "graph-build", fields)
    else:
        from flagfinder.report.graph_report import show_summary

        show_summary(terminal, summary)
        terminal.next_command("flagfinder", "diagnose", options.output, "--auto")
    return EXIT_FOUND


def _info(options: argparse.Namespace, terminal: Terminal) -> int:
    summary = open_graph(options.file).summary()
    if options.json:
        print_json(terminal, "graph-info", summary)
    else:
        from flagfinder.report.graph_report import show_summary

        show_summary(terminal, summary)
    return EXIT_FOUND


def _query(options: argparse.Namespace, terminal: Terminal) -> int:
    refuse_backwards(options.start, options.end)
    graph = open_graph(options.file)
    vertices = graph.query(
        options.tid, options.start, options.end, options.limit, options.name, options.sort
    )
    if options.json:
        fields: GraphQueryFields = {"vertices": vertices}
        print_json(terminal, "graph-query", fields)
    else:
        from flagfinder.report.graph_report import show_vertices

        show_vertices(terminal, vertices, graph.span()[0])
    return EXIT_FOUND if vertices else EXIT_NOTHING_FOUND


def _bottleneck(options: argparse.Namespace, terminal: Terminal) -> int:
    refuse_backwards(options.start, options.end)
    graph = open_graph(options.file)
    first, last = graph.span()
    found = graph.bottleneck(max(first, options.start), min(last, options.end), options.name)
    nothing: NoBottleneckFields = {"workers": [], "rows": []}
    if options.json:
        print_json(terminal, "graph-bottleneck", nothing if found is None else found)
    elif found is None:
        terminal.result("No such thread did anything then.")
    else:
        from flagfinder.report.bottleneck_report import show_bottleneck

        show_bottleneck(terminal, found)
    return EXIT_FOUND if found is not None and found["rows"] else EXIT_NOTHING_FOUND


def _export(options: argparse.Namespace, terminal: Terminal) -> int:
    written = [
        str(path) for path in export_graph(open_graph(options.file), options.output, options.format)
    ]
    if options.json:
        fields: GraphExportFields = {"files": written}
        print_json(terminal, "graph-export", fields)
    else:
        terminal.message("wrote " + ", ".join(written))
    return EXIT_FOUND
