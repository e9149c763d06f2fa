"""``flagfinder registers``: register values at the blocks before the runs part."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from flagfinder.cli.common import EXIT_FOUND, EXIT_NOTHING_FOUND, Subparsers, add_verb, print_json
from flagfinder.diff import diff
from flagfinder.errors import UnavailableError, UsageError
from flagfinder.record import record
from flagfinder.recorder import RecordOptions
from flagfinder.registers import RegisterHistory, registers_before
from flagfinder.report.record_report import show_recording
from flagfinder.report.registers_report import history_fields, show_history
from flagfinder.report.terminal import Terminal
from flagfinder.trace import Trace, open_trace

_EXAMPLES = """\
  flagfinder registers spin.trace --before-divergence normal.trace
  flagfinder registers spin.trace --before-divergence normal.trace -n 20
  flagfinder registers --json spin.trace --before-divergence normal.trace | jq '.blocks[-1].registers'

A trace without values there is recorded again with values, by the command and in the directory of the first
recording, until it spins; --no-record forbids that. Exit code 1: the runs don't part, or nothing is known."""


def add_parser(subparsers: Subparsers) -> None:
    """Adds the verb."""
    parser = add_verb(subparsers, "registers", "Show the registers at the blocks before two runs part.", _EXAMPLES, run)
    parser.add_argument("spin_trace", type=Path, metavar="SPIN", help="the run that spins")
    parser.add_argument(
        "--before-divergence", type=Path, required=True, metavar="NORMAL", help="the good run to compare with"
    )
    parser.add_argument("-n", "--blocks", type=_positive, default=8, metavar="BLOCKS", help="how many (default 8)")
    parser.add_argument("--no-record", action="store_true", help="never run the program again")


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Runs the verb."""
    spin = open_trace(options.spin_trace)
    normal = open_trace(options.before_divergence)
    history = _read(terminal, spin, normal, options.blocks)
    if history is not None and not history.is_known and not options.no_record:
        history = _record_again(terminal, spin, normal, options.blocks)
    if history is None:
        terminal.message("the runs don't part; `flagfinder diff` says why")
        return EXIT_NOTHING_FOUND
    if options.json:
        print_json(terminal, "registers", history_fields(history))
    else:
        show_history(terminal, history)
        terminal.next_command("flagfinder", "diff", options.before_divergence, options.spin_trace)
    return EXIT_FOUND if history.is_known else EXIT_NOTHING_FOUND


def _read(terminal: Terminal, spin: Trace, normal: Trace, blocks: int) -> RegisterHistory | None:
    with terminal.progress() as progress:
        progress.update("aligning the runs")
        divergence = diff(normal, spin)
        progress.update("computing registers")
        return registers_before(spin, divergence, blocks)


def _record_again(terminal: Terminal, spin: Trace, normal: Trace, blocks: int) -> RegisterHistory | None:
    """Runs the program of ``spin`` once more, with values, where it ran before."""
    directory = Path(str(spin.info["working_directory"]))
    if not directory.is_dir():
        raise UnavailableError(
            "The program can't be run again",
            f"its directory {directory} is gone, and {spin.path} has no values before the divergence",
            "Record it again yourself: flagfinder record --level values -o FILE -- PROGRAM ARGS",
            "`flagfinder diff` needs no new run.",
        )
    terminal.message(f"{spin.path} has no values before the divergence; running its program again")
    chosen = RecordOptions(level="values", stop_when_spinning=2.0)
    here = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="flagfinder-registers-") as temporary:
        again = Path(temporary, "spin.trace")
        os.chdir(directory)
        try:
            show_recording(terminal, record(spin.command, again, chosen, announce=terminal.message))
        finally:
            os.chdir(here)
        return _read(terminal, open_trace(again), normal, blocks)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise UsageError("-n wants a number of blocks", f"{text!r}", "Write -n 8 for the last eight.")
    return int(text)
