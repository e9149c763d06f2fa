# SPDX-License-Identifier: MIT
"""``flagfinder registers``: register values at the blocks before the runs part."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from flagfinder.cli.common import (
    EXIT_FOUND,
    EXIT_NOTHING_FOUND,
    VERBS,
    Number,
    Subparsers,
    add_verb,
    print_json,
)
from flagfinder.diff.diff import diff
from flagfinder.flags.registers import RegisterHistory, registers_before
from flagfinder.record.record import record
from flagfinder.record.recorder import RecordOptions
from flagfinder.report.record_report import show_recording
from flagfinder.report.registers_report import history_fields, show_history
from flagfinder.report.terminal import Terminal
from flagfinder.shared.errors import UnavailableError
from flagfinder.shared.visible import quote_command
from flagfinder.trace.trace import Trace, open_trace

if TYPE_CHECKING:
    from flagfinder.flags.fields import RegistersFields

_EXAMPLES = """\
  flagfinder registers spin.trace --before-divergence normal.trace
  flagfinder registers spin.trace --before-divergence normal.trace -n 20
  flagfinder registers --json spin.trace --before-divergence normal.trace | jq '.blocks[-1]'

A trace without values there has no registers. --record-again runs its program once more, with
values, by the command line that the trace holds and in its directory, until it spins. Only do that
with a trace that you trust, of a program that may run twice. Exit code 1: the runs don't part, or
nothing is known; 69: SPIN has no values there."""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_verb(
        subparsers,
        "registers",
        VERBS["registers"],
        _EXAMPLES,
        run,
    )
    parser.add_argument("spin_trace", type=Path, metavar="SPIN", help="the run that spins")
    parser.add_argument(
        "--before-divergence",
        type=Path,
        required=True,
        metavar="NORMAL",
        help="the good run to compare with",
    )
    parser.add_argument(
        "-n",
        "--blocks",
        type=Number("number of blocks", 1, 10_000),
        default=8,
        metavar="BLOCKS",
        help="how many (default 8)",
    )
    parser.add_argument(
        "--record-again",
        action="store_true",
        help="where SPIN has no values: print the command line that it holds, and run it to record "
        "it with values",
    )


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    spin = open_trace(options.spin_trace)
    normal = open_trace(options.before_divergence)
    history = _read(terminal, spin, normal, options.blocks)
    if history is not None and not history.is_known:
        if not options.record_again:
            raise _no_values(options.spin_trace, options.before_divergence)
        history = _record_again(terminal, spin, normal, options.blocks)
    if history is None:
        terminal.message("the runs don't part; `flagfinder diff` says why")
        if options.json:
            nothing: RegistersFields = {"tid": None, "blocks": []}
            print_json(terminal, "registers", nothing)
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


def _no_values(spin: Path, normal: Path) -> UnavailableError:
    again = quote_command(
        "flagfinder", "registers", spin, "--before-divergence", normal, "--record-again"
    )
    return UnavailableError(
        "The registers aren't known",
        f"{spin} has no values before the divergence",
        "Record the spinning run again yourself: flagfinder record --level values -o FILE -- "
        "PROGRAM ARGS\n"
        f"Or let flagfinder run the command line that the trace holds, if you trust it: {again}\n"
        "(`flagfinder trace info` shows that command line.)",
        "`flagfinder diff` needs no values.",
    )


def _record_again(
    terminal: Terminal, spin: Trace, normal: Trace, blocks: int
) -> RegisterHistory | None:
    """Runs the program of ``spin`` once more, with values, where it ran before."""
    directory = Path(str(spin.info["working_directory"]))
    if not directory.is_dir():
        raise UnavailableError(
            "The program can't be run again",
            f"its directory {directory} is gone, and {spin.path} has no values before the "
            "divergence",
            "Record it again yourself: flagfinder record --level values -o FILE -- PROGRAM ARGS",
            "`flagfinder diff` needs no new run.",
        )
    # A warning: --quiet must not hide what is run.
    terminal.warning(
        f"running what {spin.path} holds, in {directory}: {quote_command(*spin.command)}"
    )
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
