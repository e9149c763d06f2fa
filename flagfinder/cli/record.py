# SPDX-License-Identifier: MIT
"""``flagfinder record``: run a program under a tracer."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from flagfinder.chain.to_its_end import to_its_end
from flagfinder.cli.common import (
    COUNT,
    EXIT_FOUND,
    FRIDA_HARM,
    PID,
    SECONDS,
    SIZE,
    TID,
    VERBS,
    Subparsers,
    add_environment,
    add_verb,
    print_json,
)
from flagfinder.record.canary import check_canary
from flagfinder.record.record import record
from flagfinder.record.recorder import Progress, Recording, RecordOptions
from flagfinder.record.stepping import MAX_STEPS, StepOptions
from flagfinder.record.tracer_build import ensure_tracer
from flagfinder.record.with_lldb import record_lldb
from flagfinder.report.record_report import recording_fields, show_progress, show_recording
from flagfinder.report.terminal import Terminal
from flagfinder.shared.errors import UsageError
from flagfinder.shared.target import check_machine

if TYPE_CHECKING:
    from flagfinder.record.fields import RecordCheckFields

_EXAMPLES = """\
  flagfinder record -o normal.trace -- ./app input.txt
  flagfinder record -o spin.trace --stop-when-spinning -- ./app bad-input.txt
  flagfinder record -o spin.trace --stop-when-spinning 5 --then leave -- ./server
  flagfinder record -o spin.trace --until "waiting for workers" -- ./server
  flagfinder record -o spin.trace --env LD_PRELOAD=./libshim.so -- ./app
  flagfinder record -o tail.trace --last 256M --level flow -- ./long-job
  flagfinder record -o spin.trace --tracer frida --stop-when-spinning -- ./app bad-input.txt
  flagfinder record --tracer lldb -o spin.trace --from-break wait_for_work -- ./app bad-input.txt
  flagfinder record --tracer lldb -o spin.trace --pid 4711
  flagfinder record --check

The exit code is the program's own, 128+N if signal N killed it, 0 if recording ended because it
spun or printed the text of --until, or by `flagfinder mark --end` in another terminal. Ctrl-C ends
the recording and keeps it.
Under sudo the program runs as the user who called sudo."""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_verb(
        subparsers,
        "record",
        VERBS["record"],
        _EXAMPLES,
        run,
        usage="flagfinder record -o FILE [options] (-- PROGRAM [ARGS...] | --pid PID)",
    )
    parser.add_argument("-o", "--output", type=Path, help="the trace to write")
    parser.add_argument(
        "--tracer",
        choices=tuple(_TRACERS),
        default="dynamorio",
        help="who records (default dynamorio); frida needs `pip install flagfinder[frida]`; lldb "
        "steps one thread through a part of the run, also in a process that runs already",
    )
    parser.add_argument(
        "--level",
        choices=("flow", "values"),
        default="values",
        help="flow: which code ran; values: also what loads read, which naming a flag needs "
        "(default)",
    )
    parser.add_argument(
        "--last", type=SIZE, help="keep the newest SIZE of the recording, as in 256M"
    )
    parser.add_argument(
        "--stop-when-spinning",
        type=SECONDS,
        nargs="?",
        const=2.0,
        help="end once a thread has repeated the same few blocks for SECONDS (default 2); time in "
        "which it waits for a processor counts for a quarter",
    )
    parser.add_argument(
        "--until",
        type=_text,
        metavar="TEXT",
        help="end when the program prints TEXT; its stdout and stderr then pass through a pipe of "
        "the recorder's, or a pseudo-terminal in place of a terminal, unchanged",
    )
    parser.add_argument(
        "--duration",
        "--stop-after",
        dest="stop_after",
        type=SECONDS,
        help="end after SECONDS in any case",
    )
    parser.add_argument(
        "--then",
        choices=("kill", "leave"),
        default="kill",
        help="what becomes of a program that runs on when --until, a --stop option, a mark or the "
        "second Ctrl-C ends the recording (default kill)",
    )
    parser.add_argument(
        "--follow-children",
        action=argparse.BooleanOptionalAction,
        help="record child processes too, and wait for them; by default dynamorio records them "
        "while the program runs, or until one spins with --stop-when-spinning",
    )
    add_environment(parser)
    parser.add_argument(
        "--generated-code",
        choices=("auto", "yes", "no"),
        default="auto",
        help="whether the program generates code while it runs, as Java does, and needs a slower "
        "setting (default: told by the executable)",
    )
    parser.add_argument(
        "--values-in",
        type=Path,
        metavar="RANGES",
        help="record values only in the code that the file lists, lines of module+0xstart-0xend",
    )
    parser.needs("--values-in", "goes with --level values", lambda o: o.level == "values")
    parser.needs(
        "--generated-code", "goes with --tracer dynamorio", lambda o: o.tracer == "dynamorio"
    )
    parser.needs(
        "--until", "waits for what a program prints that flagfinder starts", lambda o: not o.pid
    )
    parser.needs(
        "--then",
        "is about a program that flagfinder starts, and --pid lets its process go",
        lambda o: not o.pid,
    )
    stepping = parser.add_argument_group("with --tracer lldb")
    stepping.add_argument(
        "--pid", type=PID, metavar="PID", help="record a process that runs already, and let it go"
    )
    stepping.add_argument(
        "--from-break",
        metavar="SYMBOL",
        help="begin when this function, or MODULE+0xOFFSET, is reached first (default: main; with "
        "--pid: at once)",
    )
    stepping.add_argument(
        "--max-steps",
        type=COUNT,
        metavar="N",
        help=f"end after N instructions (default {MAX_STEPS}, some twenty seconds)",
    )
    stepping.add_argument(
        "--thread",
        type=TID,
        metavar="TID",
        help="the thread, without --from-break (default: the busiest)",
    )
    parser.needs(
        "--thread", "goes with --pid and without --from-break", lambda o: o.pid and not o.from_break
    )
    stepping.add_argument(
        "--into",
        action="append",
        default=[],
        metavar="FILE",
        help="step into this library instead of over calls of it, as in libc.so.6 (repeatable)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="build the tracer if need be, check that it works here, and exit",
    )
    parser.needs("--check", "records nothing: it takes no program, no --pid, no -o", _is_bare)
    for option in _OF_RECORDINGS:
        parser.needs(option, "is about a recording, and --check makes none", lambda o: not o.check)


_OF_RECORDINGS = (
    *("--tracer", "--level", "--last", "--stop-when-spinning", "--until", "--then"),
    *("--duration", "--stop-after"),
    *("--follow-children", "--no-follow-children", "--env", "--generated-code", "--values-in"),
    *("--from-break", "--max-steps", "--thread", "--into"),
)


def _text(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError(
            "an empty text is printed from the beginning on; name a longer one"
        )
    return text


def _is_bare(options: argparse.Namespace) -> bool:
    return not (options.command or options.pid or options.output)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    if options.check:
        return _check(options.json, terminal)
    if options.output is None:
        raise UsageError(
            "There is no file to record to",
            "-o is missing",
            "Write `flagfinder record -o FILE -- PROGRAM ARGS`.",
        )
    return _TRACERS[options.tracer](options, terminal)


def _all_threads(options: argparse.Namespace, terminal: Terminal) -> int:
    _refuse(options, options.tracer, "--pid", "--from-break", "--max-steps", "--thread", "--into")
    chosen = RecordOptions(
        level=options.level,
        tracer=options.tracer,
        last=options.last,
        stop_when_spinning=options.stop_when_spinning,
        stop_after=options.stop_after,
        until=options.until,
        then=options.then,
        follow_children=options.follow_children,
        values_in=options.values_in,
        environment=tuple(options.env),
        generated_code=options.generated_code,
    )
    command = options.command or []

    def work(_: object) -> int:
        return record_and_show(command, options.output, chosen, terminal, options.json)

    return to_its_end(
        work, chosen.stop_after, [options.output, *command[:1]], chosen.then == "kill"
    )


def _with_lldb(options: argparse.Namespace, terminal: Terminal) -> int:
    _refuse(
        options,
        "lldb",
        "--last",
        "--stop-when-spinning",
        "--until",
        "--follow-children",
        "--values-in",
        "--env",
    )
    command = options.command or []
    too_few = options.max_steps is not None and options.max_steps < 1
    if options.level != "values" or (options.pid is not None) == bool(command) or too_few:
        raise UsageError(
            "lldb can't record that",
            "it needs either a program behind `--` or --pid, --max-steps above zero, and records "
            "values always",
            "Write `flagfinder record --tracer lldb -o FILE -- PROGRAM ARGS`, or `--pid PID` in "
            "place of the program.",
        )
    chosen = StepOptions(
        from_break=options.from_break,
        max_steps=options.max_steps or MAX_STEPS,
        thread=options.thread,
        into=tuple(options.into or ()),
        stop_after=options.stop_after,
        then=options.then,
    )
    stepper = getattr(options, "stepper", None)  # a debugger that has the process already
    step = stepper or record_lldb

    def work(_: object) -> int:
        with terminal.progress() as line:

            def show(progress: Progress) -> None:
                show_progress(line, progress)

            recording = step(command, options.pid, options.output, chosen, progress=show)
        return _show(recording, terminal, options.json, command)

    if stepper:
        return work(None)
    is_ended = chosen.then == "kill" and options.pid is None
    return to_its_end(work, chosen.stop_after, [options.output, *command[:1]], is_ended)


# Why a process that runs already is left alone.
_HARM = {
    "dynamorio": "DynamoRIO's way into a running process disturbs its system calls, and its way "
    "out crashed",
    "frida": FRIDA_HARM,
}


def _refuse(options: argparse.Namespace, tracer: str, *names: str) -> None:
    if options.pid is not None and tracer in _HARM:
        raise UsageError(
            f"--pid doesn't go with --tracer {tracer}",
            _HARM[tracer],
            f"`flagfinder spin {options.pid}` names what it polls; `--tracer lldb` records a part "
            "of what it does.",
        )
    for name in names:
        if getattr(options, name.removeprefix("--").replace("-", "_")) not in (None, False, []):
            raise UsageError(
                f"{name} doesn't go with --tracer {tracer}",
                "this tracer can't do that",
                "Leave it out, or choose another --tracer; `flagfinder record --help` says which "
                "has it.",
            )


_TRACERS = {"dynamorio": _all_threads, "frida": _all_threads, "lldb": _with_lldb}


def record_and_show(
    command: list[str], output: Path, chosen: RecordOptions, terminal: Terminal, as_json: bool
) -> int:
    """Records, says what was recorded and returns the exit code to end with."""
    with terminal.progress() as line:

        def show(progress: Progress) -> None:
            show_progress(line, progress)

        recording = record(command, output, chosen, announce=terminal.message, progress=show)
    return _show(recording, terminal, as_json, command)


def _show(recording: Recording, terminal: Terminal, as_json: bool, command: list[str]) -> int:
    if as_json:
        print_json(terminal, "record", recording_fields(recording))
        return recording.exit_code
    show_recording(terminal, recording)
    if (
        recording.ended in ("spinning", "limit", "printed", "marked")
        or recording.signal is not None
        or not command
    ):
        good = "normal.trace" if Path("normal.trace").exists() else "GOOD.trace"
        terminal.next_command("flagfinder", "diff", good, recording.path)
    elif recording.status == 0:
        terminal.next_command(
            "flagfinder", "record", "-o", "spin.trace", "--stop-when-spinning", "--", *command
        )
    return recording.exit_code


def _check(as_json: bool, terminal: Terminal) -> int:
    check_machine()
    tracer = ensure_tracer(terminal.message)
    for fallback in tracer.fallbacks:
        terminal.warning(fallback)
    check_canary(tracer, terminal.message)
    if as_json:
        fields: RecordCheckFields = {
            "tracer": str(tracer.directory),
            "key": tracer.key,
            "lost_patches": list(tracer.lost_patches),
            "works": True,
        }
        print_json(terminal, "record-check", fields)
    else:
        terminal.message(f"the tracer in {tracer.directory} works here")
    return EXIT_FOUND
