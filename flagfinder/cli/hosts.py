# SPDX-License-Identifier: MIT
"""``flagfinder hosts ingest|top|waits|path|bottleneck``: recordings of many hosts together."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from flagfinder.cli.common import (
    COUNT,
    EXIT_FOUND,
    EXIT_NOTHING_FOUND,
    NS,
    SECONDS,
    TID,
    VERBS,
    Parser,
    Subparsers,
    add_verb,
    print_json,
    refuse_backwards,
)
from flagfinder.hosts.engine import DUCKDB
from flagfinder.report.terminal import Terminal

if TYPE_CHECKING:
    from flagfinder.hosts.fields import HostsIngestFields, HostsTopFields, HostsWaitsFields
    from flagfinder.hosts.questions import Hosts

_SUMMARY = VERBS["hosts"]
_NEEDS = "\n\nNeeds `pip install 'flagfinder[hosts]'`, and for Spark 'flagfinder[spark]'."


def add_parser(subparsers: Subparsers) -> None:
    parser: Parser = subparsers.add_parser(
        "hosts",
        help=_SUMMARY,
        description=_SUMMARY,
        epilog="examples:\n  flagfinder hosts ingest *.events -o all\n  flagfinder hosts waits all",
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True, parser_class=Parser)
    ingest = add_verb(
        actions,
        "ingest",
        "Add recordings to a folder of Parquet tables, by host and hour.",
        "  flagfinder hosts ingest client.events server.events -o all" + _NEEDS,
        _ingest,
    )
    ingest.add_argument(
        "files",
        type=Path,
        nargs="+",
        metavar="EVENTS",
        help="what `flagfinder events record --network` wrote",
    )
    ingest.add_argument("--host", metavar="NAME", help="the host of files that do not know theirs")
    ingest.add_argument("-o", "--output", type=Path, required=True, help="the folder")
    top = add_verb(
        actions,
        "top",
        "Where threads wait most: by host, name and call.",
        "  flagfinder hosts top all\n  flagfinder hosts top all --engine spark-local" + _NEEDS,
        _top,
    )
    waits = add_verb(
        actions,
        "waits",
        "Who waits for whom, over all hosts.",
        "  flagfinder hosts waits all" + _NEEDS,
        _waits,
    )
    path = add_verb(
        actions,
        "path",
        "What made up the time of a thread, over all hosts.",
        "  flagfinder hosts path all --host shop --thread 4711" + _NEEDS,
        _path,
    )
    bottleneck = add_verb(
        actions,
        "bottleneck",
        "What threads did for which others waited, directly or through further threads.",
        "  flagfinder hosts bottleneck all --least 10ms" + _NEEDS,
        _bottleneck,
    )
    for action in (top, waits, path, bottleneck):
        action.add_argument("folder", type=Path, metavar="FOLDER", help="what `hosts ingest` wrote")
        action.add_argument(
            "--engine",
            default=DUCKDB,
            help="duckdb (default), spark-local, or spark://HOST:PORT",
        )
        action.add_argument("--limit", type=COUNT, default=20, help="rows at most (default 20)")
    path.add_argument("--host", metavar="NAME", required=True, help="the host of the thread")
    path.add_argument("--thread", type=TID, required=True, help="the thread whose time it is")
    path.add_argument("--from", dest="start", type=NS, help="from this time of its host on")
    path.add_argument("--to", dest="end", type=NS, help="up to this time")
    bottleneck.add_argument(
        "--least",
        type=SECONDS,
        default=0.001,
        help="only waits that took so long (default 1ms)",
    )


def _hosts(options: argparse.Namespace) -> Hosts:
    from flagfinder.shared.extra import need

    need("ibis", "hosts", "Tables of many hosts can't be asked", "`graph build` needs none.")
    from flagfinder.hosts.questions import Hosts  # Ibis takes a second to import

    return Hosts(options.folder, options.engine)


def _ingest(options: argparse.Namespace, terminal: Terminal) -> int:
    from flagfinder.hosts.ingest import ingest

    recordings = ingest(options.files, options.output, options.host)
    if options.json:
        fields: HostsIngestFields = {"folder": str(options.output), "recordings": recordings}
        print_json(terminal, "hosts-ingest", fields)
    else:
        from flagfinder.report.hosts_report import show_ingested

        show_ingested(terminal, recordings)
        terminal.next_command("flagfinder", "hosts", "waits", options.output)
    return EXIT_FOUND


def _top(options: argparse.Namespace, terminal: Terminal) -> int:
    rows = _hosts(options).top(options.limit)
    if options.json:
        fields: HostsTopFields = {"rows": rows}
        print_json(terminal, "hosts-top", fields)
    else:
        from flagfinder.report.hosts_report import show_top

        show_top(terminal, rows)
    return EXIT_FOUND if rows else EXIT_NOTHING_FOUND


def _waits(options: argparse.Namespace, terminal: Terminal) -> int:
    rows = _hosts(options).waits(options.limit)
    if options.json:
        fields: HostsWaitsFields = {"rows": rows}
        print_json(terminal, "hosts-waits", fields)
    else:
        from flagfinder.report.hosts_report import show_waits

        show_waits(terminal, rows)
    return EXIT_FOUND if rows else EXIT_NOTHING_FOUND


def _path(options: argparse.Namespace, terminal: Terminal) -> int:
    refuse_backwards(options.start, options.end)
    hosts = _hosts(options)
    found = hosts.path(options.host, options.thread, options.start, options.end, options.limit)
    if options.json:
        print_json(terminal, "hosts-path", found)
    else:
        from flagfinder.report.hosts_report import show_shares

        show_shares(terminal, found)
    return EXIT_FOUND if found["rows"] else EXIT_NOTHING_FOUND


def _bottleneck(options: argparse.Namespace, terminal: Terminal) -> int:
    found = _hosts(options).bottleneck(int(options.least * 1e9), options.limit)
    if options.json:
        print_json(terminal, "hosts-bottleneck", found)
    else:
        from flagfinder.report.hosts_report import show_shares

        show_shares(terminal, found)
    return EXIT_FOUND if found["rows"] else EXIT_NOTHING_FOUND
