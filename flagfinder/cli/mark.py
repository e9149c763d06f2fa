"""``flagfinder mark``: "here it hung", into the recordings that go on."""

from __future__ import annotations

import argparse

from flagfinder.cli.common import EXIT_FOUND, EXIT_NOTHING_FOUND, Subparsers, add_verb, print_json
from flagfinder.marks import mark
from flagfinder.report.terminal import Terminal

_EXAMPLES = """\
  flagfinder mark "the window is grey"
  flagfinder mark --recorder 4711 now

`diagnose` explains what the main thread did at the last mark.
exit codes: 0 marked, 1 no recording goes on, 2 failure, 77 the recorder is another user's"""


def add_parser(subparsers: Subparsers) -> None:
    """Adds the verb."""
    parser = add_verb(subparsers, "mark", 'Say "here it hung" while `events record` runs.', _EXAMPLES, run)
    parser.add_argument("text", metavar="TEXT")
    parser.add_argument("--recorder", type=int, metavar="PID", help="the recorder's process id (default: all)")


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Runs the verb."""
    marked = mark(options.text, options.recorder)
    if options.json:
        print_json(terminal, "mark", {"recorders": marked})
    elif marked:
        terminal.message(f"marked in the recording of process {', '.join(map(str, marked))}")
    else:
        terminal.warning("no `flagfinder events record` runs here that could be marked")
    return EXIT_FOUND if marked else EXIT_NOTHING_FOUND
