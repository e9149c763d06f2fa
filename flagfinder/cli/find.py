# SPDX-License-Identifier: MIT
"""``flagfinder find``: record both runs and name the flag, in one go."""

from __future__ import annotations

import argparse
import shlex
import signal
from pathlib import Path

from flagfinder.chain.find import Found, Observer, find
from flagfinder.chain.native import NativeOptions, find_native
from flagfinder.chain.to_its_end import to_its_end
from flagfinder.cli.common import PID, SECONDS, VERBS, Subparsers, add_environment, add_verb
from flagfinder.cli.diff import show
from flagfinder.record.recorder import Progress, Recording, RecordOptions
from flagfinder.report.record_report import show_progress, show_recording
from flagfinder.report.terminal import Terminal
from flagfinder.shared.errors import UsageError
from flagfinder.trace.trace import open_trace

_EXAMPLES = """\
  flagfinder find --normal './app good.conf' --spin './app bad.conf'
  flagfinder find --normal './app' --spin './app --broken' -d traces --level flow
  flagfinder find --normal "sh -c 'exec ./app < in.txt'" --spin './app'
  flagfinder find --native --normal './app good.conf' --pid 4711

The commands are split into words as a shell does, but no shell runs them. With --native nothing
is recorded: the bad run is asked what it polls, and the good run is watched at its own speed
(CAP_BPF and CAP_PERFMON). Exit codes as of `flagfinder diff`."""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_verb(
        subparsers,
        "find",
        VERBS["find"],
        _EXAMPLES,
        run,
    )
    parser.add_argument("--normal", required=True, metavar="CMD", help="a command that ends well")
    bad = parser.add_mutually_exclusive_group(required=True)
    bad.add_argument("--spin", metavar="CMD", help="the command that spins")
    bad.add_argument(
        "--pid", type=PID, metavar="PID", help="with --native: a process that spins already"
    )
    parser.add_argument(
        "--native",
        action="store_true",
        help="record nothing: both runs go at their own speed, under hardware watchpoints",
    )
    parser.add_argument(
        "-d",
        "--directory",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="where the traces go (default: here)",
    )
    parser.add_argument(
        "--level",
        choices=("flow", "values"),
        help="flow: a light first pass, then again with values where it points (default: values)",
    )
    parser.add_argument(
        "--stop-when-spinning",
        type=SECONDS,
        default=2.0,
        help="end the spinning run after so long, or ask it then (default 2)",
    )
    add_environment(parser)
    parser.add_argument(
        "--overwrite", action="store_true", help="replace the traces of an earlier find in DIR"
    )
    parser.add_argument(
        "--follow-children",
        action=argparse.BooleanOptionalAction,
        help="record child processes too (default)",
    )
    parser.add_argument("--explain", action="store_true", help="show the reasoning step by step")
    parser.needs("--pid", "is not recorded: add --native", lambda o: o.native)
    for option in (
        "--level",
        "--overwrite",
        "--follow-children",
        "--no-follow-children",
        "-d",
        "--directory",
    ):
        parser.needs(option, "is about recordings, and --native makes none", lambda o: not o.native)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    words = [_words("--normal", options.normal)]
    if options.spin is not None:
        words.append(_words("--spin", options.spin))
    one = _run_native if options.native else _run_recorded
    named = [options.directory.absolute(), *(program for program, *_ in words)]
    return to_its_end(lambda _: one(options, terminal, *words), None, named, is_ended=True)


def _run_recorded(
    options: argparse.Namespace, terminal: Terminal, normal: list[str], spin: list[str]
) -> int:
    directory: Path = options.directory
    directory.mkdir(parents=True, exist_ok=True)
    chosen = RecordOptions(
        level=options.level or "values",
        stop_when_spinning=options.stop_when_spinning,
        follow_children=options.follow_children,
        environment=tuple(options.env),
    )
    found = _find(normal, spin, directory, chosen, terminal, options.overwrite)
    return show(
        terminal,
        found.report,
        [found.normal],
        open_trace(found.spin),
        options.json,
        options.explain,
    )


def _run_native(
    options: argparse.Namespace,
    terminal: Terminal,
    normal: list[str],
    spin: list[str] | None = None,
) -> int:
    bad = spin or options.pid
    chosen = NativeOptions(options.stop_when_spinning, tuple(options.env))
    report = find_native(normal, bad, chosen, terminal.message)
    return show(terminal, report, [], None, options.json, options.explain)


def _find(
    normal: list[str],
    spin: list[str],
    directory: Path,
    chosen: RecordOptions,
    terminal: Terminal,
    overwrite: bool,
) -> Found:
    with terminal.progress() as line:

        def recorded(recording: Recording) -> None:
            line.clear()
            show_recording(terminal, recording)
            if recording.ended == "interrupted" or recording.signal == signal.SIGINT:
                raise KeyboardInterrupt

        def progress(state: Progress) -> None:
            show_progress(line, state)

        return find(
            normal,
            spin,
            directory,
            chosen,
            Observer(terminal.message, progress, recorded),
            overwrite,
        )


def _words(option: str, command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(
            f"{option} is no command line", f"{command!r}: {error}", "Check the quotes."
        ) from error
    if not words:
        raise UsageError(
            f"{option} is empty", "there is no program to run", f"Write {option} 'PROGRAM ARGS'."
        )
    return words
