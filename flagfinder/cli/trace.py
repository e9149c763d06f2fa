# SPDX-License-Identifier: MIT
"""``flagfinder trace info|check|dump|export|import``: look into a recording, take it to other
tools.
"""

from __future__ import annotations

import argparse
import reprlib
from pathlib import Path
from typing import TYPE_CHECKING

from flagfinder.cli.common import (
    COUNT,
    EXIT_FOUND,
    EXIT_NOTHING_FOUND,
    TID,
    VERBS,
    Number,
    Parser,
    Subparsers,
    add_export,
    add_verb,
    print_json,
)
from flagfinder.report.terminal import Terminal
from flagfinder.report.trace_report import show_trace, trace_fields
from flagfinder.report.units import count
from flagfinder.trace.export import (
    FORMATS,
    INSTRUCTIONS,
    Format,
    Image,
    export_trace,
    format_of,
    import_tenet,
)
from flagfinder.trace.trace import open_trace

if TYPE_CHECKING:
    from flagfinder.trace.fields import (
        TraceCheckFields,
        TraceDumpFields,
        TraceExportFields,
        TraceImportFields,
    )

_SUMMARY = VERBS["trace"]


def add_parser(subparsers: Subparsers) -> None:
    """Adds the verb and its three actions."""
    examples = "  flagfinder trace info spin.trace\n  flagfinder trace check spin.trace"
    parser: Parser = subparsers.add_parser(
        "trace", help=_SUMMARY, description=_SUMMARY, epilog=f"examples:\n{examples}"
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True, parser_class=Parser)
    info = add_verb(
        actions,
        "info",
        "What was recorded: command, threads, modules, losses.",
        "  flagfinder trace info spin.trace\n  flagfinder trace info --json spin.trace | jq "
        ".processes",
        _info,
    )
    check = add_verb(
        actions,
        "check",
        "Check every invariant of a recording. Exit code 0: sound; 65: not.",
        "  flagfinder trace check spin.trace",
        _check,
    )
    dump = add_verb(
        actions,
        "dump",
        "Print a stream of a recording as text.",
        "  flagfinder trace dump spin.trace --what events\n"
        "  flagfinder trace dump spin.trace --what flow --tid 4711 --from 100000 --limit 50",
        _dump,
    )
    export = add_verb(
        actions,
        "export",
        "Write a recording in another tool's format.",
        "  flagfinder trace export spin.trace -o spin.drcov             which blocks ran: "
        "Lighthouse\n"
        "  flagfinder trace export spin.trace -o spin.tenet --tid 4711  each instruction's effect: "
        "Tenet\n"
        "  flagfinder trace export spin.trace -o spin.perfetto-trace    calls over time: "
        "ui.perfetto.dev\n"
        "  flagfinder trace export spin.trace -o spin.parquet           a folder of tables; needs "
        "pyarrow",
        _export,
    )
    importing = add_verb(
        actions,
        "import",
        "Make a recording of a Tenet text trace, to compare it with others.",
        "  flagfinder trace import run.tenet --image ./app@0x555555554000 -o run.trace\n"
        "  flagfinder diff normal.trace run.trace",
        _import,
    )
    add_export(export, FORMATS)
    export.add_argument(
        "--tid", type=TID, help="tenet: this thread (default: the busiest); drcov: its process"
    )
    export.add_argument(
        "--instructions",
        type=COUNT,
        default=INSTRUCTIONS,
        help=f"tenet: the last N (default {INSTRUCTIONS})",
    )
    export.needs("--instructions", "is for --format tenet", lambda o: _format(o) == "tenet")
    export.needs(
        "--tid", "is for --format tenet and drcov", lambda o: _format(o) in ("tenet", "drcov")
    )
    importing.add_argument(
        "-o", "--output", type=Path, required=True, help="the recording to write"
    )
    importing.add_argument(
        "--image",
        dest="images",
        type=_image,
        action="append",
        required=True,
        metavar="ELF[@BASE]",
        help="a file whose code ran, and where it was loaded; may be given several times",
    )
    for action in (info, check, dump, export, importing):
        action.add_argument("file", type=Path, metavar="FILE")
    dump.add_argument(
        "--what", choices=("flow", "values", "events", "blocks", "modules"), default="flow"
    )
    dump.add_argument("--tid", type=TID, help="this thread only (default: all)")
    dump.add_argument(
        "--from",
        dest="start",
        type=Number("flow position", 0, 2**63 - 1),
        default=0,
        metavar="POS",
        help="begin at this flow position",
    )
    dump.add_argument(
        "--limit", type=COUNT, default=1000, help="lines for each thread (default 1000)"
    )

    for option in ("--tid", "--from"):
        dump.needs(
            option,
            "is for what threads did: flow, values, events",
            lambda o: o.what not in ("blocks", "modules"),
        )


def _format(options: argparse.Namespace) -> Format:
    form: Format | None = options.format
    return form or format_of(options.output)


def _info(options: argparse.Namespace, terminal: Terminal) -> int:
    trace = open_trace(options.file)
    if options.json:
        print_json(terminal, "trace-info", trace_fields(trace))
    else:
        show_trace(terminal, trace)
        terminal.next_command("flagfinder", "trace", "check", options.file)
    return EXIT_FOUND


def _check(options: argparse.Namespace, terminal: Terminal) -> int:
    violations = open_trace(options.file).check()
    if options.json:
        fields: TraceCheckFields = {"sound": not violations, "violations": list(violations)}
        print_json(terminal, "trace-check", fields)
    elif violations:
        for violation in violations:
            terminal.result(violation)
        terminal.result(f"{options.file}: {count(len(violations), 'violation')}")
    else:
        terminal.result(f"{options.file}: sound")
    return 65 if violations else EXIT_FOUND


def _dump(options: argparse.Namespace, terminal: Terminal) -> int:
    lines: list[str] = []
    has_some = False

    def write(text: str) -> None:
        nonlocal has_some
        has_some = True
        if options.json:
            lines.append(text)
        else:
            terminal.raw(text)
            terminal.check_read()

    open_trace(options.file).dump(options.what, options.tid, options.start, options.limit, write)
    if options.json:
        fields: TraceDumpFields = {"what": options.what, "lines": "".join(lines).splitlines()}
        print_json(terminal, "trace-dump", fields)
    return EXIT_FOUND if has_some else EXIT_NOTHING_FOUND


def _image(text: str) -> Image:
    path, at, base = text.rpartition("@")
    try:
        number = int(base, 16) if at else None
    except ValueError:
        number = None
    if number is None:
        return Image(Path(text))
    if not 0 <= number < 2**64:
        raise argparse.ArgumentTypeError(
            f"{reprlib.repr(base)} is no address from 0 to {2**64 - 1}"
        )
    return Image(Path(path), number)


def _export(options: argparse.Namespace, terminal: Terminal) -> int:
    done = export_trace(
        open_trace(options.file),
        options.output,
        options.format,
        tid=options.tid,
        instructions=options.instructions,
    )
    if options.json:
        fields: TraceExportFields = {"paths": [str(path) for path in done.paths], **done.counts}
        print_json(terminal, "trace-export", fields)
    else:
        counts = ", ".join(
            f"{name.replace('_', ' ')} {number:,}" for name, number in done.counts.items()
        )
        terminal.result(f"{options.output}: {counts}")
    return EXIT_FOUND


def _import(options: argparse.Namespace, terminal: Terminal) -> int:
    counts = import_tenet(options.file, options.images, options.output)
    if options.json:
        fields: TraceImportFields = {"path": str(options.output), **counts}
        print_json(terminal, "trace-import", fields)
    else:
        outside = counts["outside_images"]
        missing = f", {outside:,} of them in no image" if outside else ""
        terminal.result(
            f"{options.output}: {count(counts['instructions'], 'instruction')}{missing}"
        )
        terminal.next_command("flagfinder", "trace", "info", options.output)
    return EXIT_FOUND
