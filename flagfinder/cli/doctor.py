"""``flagfinder doctor``: what works for this user on this machine."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.text import Text

from flagfinder.cli.common import EXIT_FOUND, EXIT_NOTHING_FOUND, Subparsers, add_verb, print_json
from flagfinder.doctor import examine
from flagfinder.machine import as_fields
from flagfinder.report.terminal import Terminal

_EXAMPLES = """\
  flagfinder doctor
  flagfinder doctor --pid 4711         can this process be looked at, has it debug info
  flagfinder doctor --program ./app
  flagfinder doctor --json

exit codes: 0 all works; 1 something does not, and its fix is shown"""

_SIGNS = {True: ("yes", "green"), False: ("no", "bold red"), None: ("?", "yellow")}


def add_parser(subparsers: Subparsers) -> None:
    """Adds the verb."""
    parser = add_verb(subparsers, "doctor", "Say what works for this user on this machine.", _EXAMPLES, run)
    parser.add_argument("--pid", type=int, metavar="PID", help="also examine this process")
    parser.add_argument("--program", type=Path, metavar="FILE", help="also examine this program")


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Runs the verb."""
    report = examine(options.pid, options.program)
    if options.json:
        print_json(terminal, "doctor", {"works": report.works, "checks": as_fields(report.checks)})
    else:
        for check in report.checks:
            sign, style = _SIGNS[check.works]
            line = Text(f"{check.name:<14}", "bold").append(f"{sign:<5}", style).append(check.found)
            terminal.result(line)
            if check.fix:
                terminal.result(Text(f"{'':19}fix: {check.fix}  (for {check.serves})"))
    return EXIT_FOUND if report.works else EXIT_NOTHING_FOUND
