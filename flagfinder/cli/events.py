# SPDX-License-Identifier: MIT
"""``flagfinder events record|top|import|info|check|dump``: who runs, who wakes whom, what threads
wait for.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from flagfinder.cli.common import (
    COUNT,
    EXIT_FOUND,
    EXIT_INTERRUPTED,
    EXIT_NOTHING_FOUND,
    NS,
    PID,
    SECONDS,
    SIZE,
    TID,
    VERBS,
    Number,
    Parser,
    Size,
    Subparsers,
    add_environment,
    add_verb,
    print_json,
)
from flagfinder.cli.top import add_top
from flagfinder.graph.events import (
    STACK_MODES,
    SYSCALLS,
    EventFile,
    EventOptions,
    EventProgress,
    import_events,
    record_events,
)
from flagfinder.report.events_report import (
    import_fields,
    recording_fields,
    show_import,
    show_recording,
    show_summary,
)
from flagfinder.report.terminal import Terminal
from flagfinder.report.units import count, size
from flagfinder.shared.errors import UsageError

if TYPE_CHECKING:
    from flagfinder.graph.event_fields import EventsCheckFields, EventsDumpFields

_SUMMARY = VERBS["events"]
_RECORD_EXAMPLES = """\
  flagfinder events record -o run.events -- ./app
  flagfinder events record -o run.events --pid 4711 --duration 10
  flagfinder events record -o run.events --pid 4711 -- ./client
  flagfinder events record -o run.events --all --stacks application-all -- ./app
  flagfinder events record -o run.events --stacks library --stack-copy 8K -- ./app
  flagfinder events record -o run.events --syscalls target --buffer 256M -- ./server
  flagfinder events record -o run.events --mark-on-hang 2 -- ./editor
  flagfinder events record -o run.events --pid 4711 --threads 'render*' --syscalls target
  flagfinder events record -o always.events --all --size 2G
  flagfinder events record -o client.events --network -- ./client

Needs CAP_BPF and CAP_PERFMON. Under sudo the program runs as the user who called sudo. The
recording ends when the program (without one, the processes) and all that it started have ended.
Ctrl-C ends it before, and keeps it. exit codes: the program's own; 0 without one; 2 can't be
recorded, 69 unavailable, 77 no permission, 130 Ctrl-C"""


def add_parser(subparsers: Subparsers) -> None:
    parser: Parser = subparsers.add_parser(
        "events",
        help=_SUMMARY,
        description=_SUMMARY,
        epilog="examples:\n  flagfinder events record -o run.events -- ./app\n  flagfinder events "
        "info run.events",
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True, parser_class=Parser)
    record = add_verb(
        actions,
        "record",
        _SUMMARY,
        _RECORD_EXAMPLES,
        _record,
        usage="flagfinder events record -o FILE [options] [-- PROGRAM [ARGS...]]",
    )
    _add_record_options(record)
    add_top(actions)
    imports = add_verb(
        actions,
        "import",
        "Make a recording of what `perf record -a` or Perfetto wrote.",
        "  perf record -a -e 'sched:sched_switch,sched:sched_waking,raw_syscalls:*' -o perf.data "
        "-- ./app\n"
        "  flagfinder events import perf.data -o run.events\n"
        "  flagfinder events import trace.perfetto-trace -o run.events",
        _import,
    )
    imports.add_argument("-o", "--output", type=Path, required=True, help="the file to write")
    info = add_verb(
        actions,
        "info",
        "What was recorded: events by kind, losses by CPU, how it ended.",
        "  flagfinder events info run.events\n  flagfinder events info --json run.events | jq "
        ".wakes",
        _info,
    )
    check = add_verb(
        actions,
        "check",
        "Check a recording. Exit code 0: sound; 65: not.",
        "  flagfinder events check run.events",
        _check,
    )
    dump = add_verb(
        actions,
        "dump",
        "Print events as text, one a line.",
        "  flagfinder events dump run.events --tid 4711 --limit 50",
        _dump,
    )
    for action in (imports, info, check, dump):
        action.add_argument("file", type=Path, metavar="FILE")
    dump.add_argument("--tid", type=TID, help="only what concerns this thread")
    dump.add_argument("--from", dest="start", type=NS, default=0, help="begin at this time")
    dump.add_argument("--limit", type=COUNT, default=1000, help="lines at most (default 1000)")


def _add_record_options(parser: Parser) -> None:
    parser.add_argument("-o", "--output", type=Path, help="the file to write")
    parser.add_argument(
        "--pid",
        type=PID,
        action="append",
        help="a process (repeatable); beside a program also one that it talks to",
    )
    parser.add_argument(
        "--all", action="store_true", help="scheduling of all processes, not only the target's"
    )
    parser.add_argument(
        "--threads",
        action="append",
        metavar="PATTERN",
        help="only switches, wakes and calls of threads with such names, as in '*ui*', 'pool-?' "
        "(repeatable)",
    )
    parser.add_argument(
        "--syscalls",
        choices=SYSCALLS,
        default="lazy",
        help="lazy: those that threads block in and wake from (default); target: all calls of the "
        "target",
    )
    parser.add_argument(
        "--stacks",
        choices=STACK_MODES,
        default="off",
        help="call sites where threads block and wake others: the innermost of the program, all of "
        "the program, one of each library, all (default off)",
    )
    parser.add_argument(
        "--stack-budget",
        type=Number("number of call sites", 1, 31),
        default=8,
        metavar="N",
        help="call sites kept of a stack, at most 31 (default 8)",
    )
    parser.add_argument(
        "--stack-copy",
        type=Size(2**14),
        default=0,
        help="copy so much of each stack, at most 16K, and find callers by unwind tables, also "
        "across large frames",
    )
    parser.needs("--stack-copy", "goes with --stacks only", lambda o: o.stacks != "off")
    parser.needs("--stack-budget", "goes with --stacks only", lambda o: o.stacks != "off")
    nobody = "is about a program or --pid, and there is none"
    parser.needs("--stacks", nobody, _has_target)
    parser.needs("--syscalls", nobody, lambda o: o.syscalls != "target" or _has_target(o))
    parser.add_argument(
        "--buffer", type=Size(2**31), default=64 << 20, help="of the kernel's ring (default 64M)"
    )
    parser.add_argument(
        "--size",
        type=SIZE,
        help="keep the file within SIZE on the disk: the oldest events are dropped, so that it "
        "can be always on",
    )
    parser.add_argument("--duration", type=SECONDS, help="stop after SECONDS")
    parser.add_argument(
        "--mark-on-hang",
        type=SECONDS,
        help="write a mark, as `flagfinder mark` does, when the main thread was not back at its "
        "event wait for SECONDS (poll, select, epoll)",
    )
    parser.add_argument(
        "--network",
        action="store_true",
        help="record what is sent and received over TCP and UDP, so that recordings of several "
        "hosts can be joined",
    )
    parser.add_argument(
        "--host", metavar="NAME", help="call this host NAME (default: what it calls itself)"
    )
    add_environment(parser)
    parser.needs("--env", "is for a program, and there is none", lambda o: bool(o.command))


def _has_target(options: argparse.Namespace) -> bool:
    return bool(options.command or options.pid or not options.all)


def _record(options: argparse.Namespace, terminal: Terminal) -> int:
    if options.output is None:
        raise UsageError(
            "There is no file to record to",
            "-o is missing",
            "Write `flagfinder events record -o FILE -- PROGRAM ARGS`.",
        )
    if not (options.command or options.pid or options.all):
        raise UsageError(
            "There is nothing to record",
            "no program, no --pid, no --all",
            "Write `-- PROGRAM`, --pid PID or --all.",
        )
    chosen = EventOptions(
        everything=options.all,
        threads=tuple(options.threads),
        syscalls=options.syscalls,
        stacks=options.stacks,
        stack_budget=options.stack_budget,
        stack_copy=options.stack_copy,
        buffer=options.buffer,
        duration=options.duration,
        size=options.size,
        mark_on_hang=options.mark_on_hang,
        network=options.network,
        host=options.host,
    )
    told = False
    with terminal.progress() as line:

        def show(progress: EventProgress) -> None:
            nonlocal told
            if progress.outlives and not told:
                told = True
                terminal.message(
                    "the program ended; what it started is recorded until it ends, too, or Ctrl-C"
                )
            lost = f", {progress.lost:,} lost" if progress.lost else ""
            line.update(f"{count(progress.events, 'event')}, {size(progress.bytes)}{lost}")

        recording = record_events(
            options.output,
            options.command or [],
            options.pid,
            chosen,
            show,
            environment=options.env,
        )
    if options.json:
        print_json(terminal, "events-record", recording_fields(recording))
    else:
        show_recording(terminal, recording)
        terminal.next_command("flagfinder", "events", "info", options.output)
    if recording.exit_status is not None:
        return recording.exit_status
    return EXIT_INTERRUPTED if recording.ended == "interrupted" else EXIT_FOUND


def _import(options: argparse.Namespace, terminal: Terminal) -> int:
    imported = import_events(options.file, options.output)
    if options.json:
        print_json(terminal, "events-import", import_fields(imported))
    else:
        show_import(terminal, imported)
        terminal.next_command(
            "flagfinder",
            "graph",
            "build",
            options.output,
            "-o",
            options.output.with_suffix(".graph"),
        )
    return EXIT_FOUND


def _info(options: argparse.Namespace, terminal: Terminal) -> int:
    summary = EventFile(options.file).summary()
    if options.json:
        print_json(terminal, "events-info", summary)
    else:
        show_summary(terminal, summary)
    return EXIT_FOUND


def _check(options: argparse.Namespace, terminal: Terminal) -> int:
    findings = EventFile(options.file).check()
    violations = findings.violations
    if options.json:
        fields: EventsCheckFields = {
            "sound": not violations,
            "violations": list(violations),
            "notes": list(findings.notes),
        }
        print_json(terminal, "events-check", fields)
    else:
        for violation in violations:
            terminal.result(violation)
        for note in findings.notes:
            terminal.result(f"note: {note}")
        verdict = count(len(violations), "violation") if violations else "sound"
        terminal.result(f"{options.file}: {verdict}")
    return 65 if violations else EXIT_FOUND


def _dump(options: argparse.Namespace, terminal: Terminal) -> int:
    lines = EventFile(options.file).dump(options.tid, options.start, options.limit)
    if options.json:
        fields: EventsDumpFields = {"lines": lines}
        print_json(terminal, "events-dump", fields)
    elif lines:
        terminal.raw("\n".join(lines))
    return EXIT_FOUND if lines else EXIT_NOTHING_FOUND
