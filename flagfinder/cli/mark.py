# SPDX-License-Identifier: MIT
"""``flagfinder mark``: "here it hung", into the recordings that go on."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from flagfinder.cli.common import (
    EXIT_FOUND,
    EXIT_NOTHING_FOUND,
    PID,
    VERBS,
    Subparsers,
    add_verb,
    print_json,
)
from flagfinder.report.terminal import Terminal
from flagfinder.shared.errors import UsageError
from flagfinder.shared.marks import END, MARK, mark

if TYPE_CHECKING:
    from flagfinder.graph.event_fields import MarkedFields

_EXAMPLES = """\
  flagfinder mark "the window is grey"
  flagfinder mark --recorder 4711 now
  flagfinder mark --end "now it hangs"
  sudo flagfinder mark --all "the machine hangs"

`diagnose` explains what the main thread did at the last mark.
exit codes: 0 marked or ended, 1 no recording goes on, 2 failure, 77 another user's recorder"""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_verb(subparsers, "mark", VERBS["mark"], _EXAMPLES, run)
    parser.add_argument(
        "text", metavar="TEXT", nargs="?", help="what the mark says; optional with --end"
    )
    parser.add_argument(
        "--end",
        action="store_true",
        help="end what `flagfinder record` records, in place of marking events",
    )
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument(
        "--recorder",
        type=PID,
        metavar="PID",
        help="the recorder's process id (default: all of yours)",
    )
    chosen.add_argument(
        "--all", action="store_true", help="those of other users too, which root may mark"
    )


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    if options.text is None and not options.end:
        raise UsageError(
            "There is nothing to mark with",
            "TEXT is missing",
            'Write `flagfinder mark "it hangs"`.',
        )
    text = "the end" if options.text is None else options.text
    kind = END if options.end else MARK
    reached = mark(text, options.recorder, kind, everyones=options.all)
    marked = reached.recorders
    if reached.left_out:
        others = ", ".join(map(str, reached.left_out))
        does = "ended" if options.end else "marked"
        terminal.warning(
            f"not {does}: recorder {others} of another user (root may, with --all or --recorder)"
        )
    if options.json:
        fields: MarkedFields = {"recorders": marked, "left_out": reached.left_out}
        print_json(terminal, "mark", fields)
    elif options.end and marked:
        terminal.message(f"ended the recording of process {', '.join(map(str, marked))}")
    elif reached.left_out:
        pass  # it was said
    elif options.end:
        terminal.warning(
            "no `flagfinder record` runs here that could be ended; `flagfinder record -o FILE -- "
            "PROGRAM` begins one"
        )
    elif marked:
        terminal.message(f"marked in the recording of process {', '.join(map(str, marked))}")
    else:
        terminal.warning(
            "no `flagfinder events record` runs here that could be marked; `flagfinder events "
            "record -o FILE --pid PID` begins one"
        )
    return EXIT_FOUND if marked else EXIT_NOTHING_FOUND
