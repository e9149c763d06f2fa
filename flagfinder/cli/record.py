"""``flagfinder record``: run a program under the tracer."""

from __future__ import annotations

import argparse
from pathlib import Path

from flagfinder.canary import check_canary
from flagfinder.cli.common import (
    EXIT_FOUND,
    Subparsers,
    add_verb,
    parse_seconds,
    parse_size,
    print_json,
)
from flagfinder.errors import UsageError
from flagfinder.record import record
from flagfinder.recorder import Progress, RecordOptions
from flagfinder.report.record_report import recording_fields, show_progress, show_recording
from flagfinder.report.terminal import Terminal
from flagfinder.target import check_machine
from flagfinder.tracer_build import ensure_tracer

_EXAMPLES = """\
  flagfinder record -o normal.trace -- ./app input.txt
  flagfinder record -o spin.trace --stop-when-spinning -- ./app bad-input.txt
  flagfinder record -o spin.trace --stop-when-spinning 5 --then leave -- ./server
  flagfinder record -o tail.trace --last 256M --level flow -- ./long-job
  flagfinder record -o spin.trace --tracer frida --stop-when-spinning -- ./app bad-input.txt
  flagfinder record --check

The exit code is the program's own, 128+N if signal N killed it, 0 if recording ended because it spun.
Ctrl-C ends the recording and keeps it. Under sudo the program runs as the user who called sudo."""


def add_parser(subparsers: Subparsers) -> None:
    """Adds the verb."""
    parser = add_verb(
        subparsers,
        "record",
        "Run a program and record what its threads execute.",
        _EXAMPLES,
        run,
        usage="flagfinder record -o FILE [options] -- PROGRAM [ARGS...]",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="the trace to write")
    parser.add_argument(
        "--tracer",
        choices=("dynamorio", "frida"),
        default="dynamorio",
        help="who records; frida needs `pip install flagfinder[frida]` (default dynamorio)",
    )
    parser.add_argument(
        "--level",
        choices=("flow", "values"),
        default="values",
        help="flow: which code ran; values: also what loads read, which naming a flag needs (default)",
    )
    parser.add_argument(
        "--last", type=parse_size, metavar="SIZE", help="keep the newest SIZE of the recording, as in 256M"
    )
    parser.add_argument(
        "--stop-when-spinning",
        type=parse_seconds,
        nargs="?",
        const=2.0,
        metavar="SECONDS",
        help="end once a thread has repeated the same few blocks for SECONDS (default 2)",
    )
    parser.add_argument("--stop-after", type=parse_seconds, metavar="SECONDS", help="end after SECONDS in any case")
    parser.add_argument(
        "--then",
        choices=("kill", "leave"),
        default="kill",
        help="what becomes of a program that a --stop option ended the recording of",
    )
    parser.add_argument("--follow-children", action="store_true", help="record child processes too")
    parser.add_argument(
        "--values-in",
        type=Path,
        metavar="RANGES",
        help="record values only in the code that the file lists, lines of module+0xstart-0xend",
    )
    parser.add_argument(
        "--check", action="store_true", help="build the tracer if need be, check that it works here, and exit"
    )


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Runs the verb."""
    if options.check:
        return _check(options.json, terminal)
    if options.output is None:
        raise UsageError(
            "There is no file to record to",
            "-o is missing",
            "Write `flagfinder record -o FILE -- PROGRAM ARGS`.",
        )
    chosen = RecordOptions(
        level=options.level,
        tracer=options.tracer,
        last=options.last,
        stop_when_spinning=options.stop_when_spinning,
        stop_after=options.stop_after,
        then=options.then,
        follow_children=options.follow_children,
        values_in=options.values_in,
    )
    return record_and_show(options.command or [], options.output, chosen, terminal, options.json)


def record_and_show(command: list[str], output: Path, chosen: RecordOptions, terminal: Terminal, as_json: bool) -> int:
    """Records, says what was recorded and returns the exit code to end with."""
    with terminal.progress() as line:

        def show(progress: Progress) -> None:
            show_progress(line, progress)

        recording = record(command, output, chosen, announce=terminal.message, progress=show)
    if as_json:
        print_json(terminal, "record", recording_fields(recording))
        return recording.exit_code
    show_recording(terminal, recording)
    if recording.ended == "spinning" or recording.signal is not None:
        terminal.next_command("flagfinder", "diff", "normal.trace", output)
    else:
        terminal.next_command("flagfinder", "record", "-o", "spin.trace", "--stop-when-spinning", "--", *command)
    return recording.exit_code


def _check(as_json: bool, terminal: Terminal) -> int:
    check_machine()
    tracer = ensure_tracer(terminal.message)
    check_canary(tracer, terminal.message)
    if as_json:
        print_json(terminal, "record-check", {"tracer": str(tracer.directory), "key": tracer.key, "works": True})
    else:
        terminal.message(f"the tracer in {tracer.directory} works here")
    return EXIT_FOUND
