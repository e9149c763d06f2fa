# SPDX-License-Identifier: MIT
"""``flagfinder guard``: runs a command, and says why it hangs if it does."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from flagfinder.cli.common import SECONDS, Subparsers, add_verb
from flagfinder.live.guard import Hang, guard
from flagfinder.report.terminal import Terminal
from flagfinder.report.why_page import why_page
from flagfinder.report.why_report import show_why, why_text
from flagfinder.shared.errors import UsageError
from flagfinder.shared.private_file import create_private
from flagfinder.shared.visible import quote_command

if TYPE_CHECKING:
    from flagfinder.live.fields import GuardFields, WhyFields

_EXAMPLES = """\
  flagfinder guard --after 60 -o hang -- make test    at most 60 s; then hang/why.txt, why.json and why.html
  flagfinder guard --idle 30 -- ./server-test         once nothing is read, written or computed for 30 s

The command runs as it is: nothing is watched until it hangs. Then `flagfinder why` asks each of its processes, and all
of them are ended. Under GitHub Actions the story is also an annotation.

exit codes: that of the command (128 + N for signal N); 124 it hung; 126 or 127 it can't be started"""


def add_parser(subparsers: Subparsers) -> None:
    """Adds the verb."""
    parser = add_verb(subparsers, "guard", "Run a command; if it hangs, say why, and end it.", _EXAMPLES, run)
    parser.add_argument("--after", type=SECONDS, metavar="SECONDS", help="it hangs when it runs for so long")
    parser.add_argument(
        "--idle",
        type=SECONDS,
        metavar="SECONDS",
        help="it hangs when for so long its processes read and write nothing and use no processor",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="write why.txt, why.json and why.html there")


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Runs the verb."""
    if not options.command or (options.after is None and options.idle is None):
        raise UsageError(
            "There is nothing to guard" if not options.command else "It isn't said when the command hangs",
            "no command behind --" if not options.command else "neither --after nor --idle",
            "flagfinder guard --after 60 -- COMMAND",
        )
    output: Path | None = options.output

    hangs: list[Hang] = []

    def hung(hang: Hang) -> None:
        hangs.append(hang)
        terminal.warning(f"{quote_command(*options.command)} hangs: {hang.because}")
        for note in hang.notes:
            terminal.warning(note)
        if output is not None:
            _write(output, hang, quote_command(*options.command))
            terminal.message(f"wrote {output}/why.txt, why.json, why.html")
        if not hang.reports:
            return
        if not options.json:
            show_why(terminal, hang.reports[0])
        if os.environ.get("GITHUB_ACTIONS") == "true" and not options.json:
            terminal.raw(_annotation(hang))

    status = guard(options.command, after=options.after, idle=options.idle, hung=hung)
    if options.json:
        fields: GuardFields = {
            "schema": "flagfinder.guard/1",
            "exit_code": status,
            "hung": bool(hangs),
            "because": hangs[0].because if hangs else None,
            "reports": [report.raw for hang in hangs for report in hang.reports],
            "notes": [note for hang in hangs for note in hang.notes],
        }
        terminal.answer(fields)
    return status


def _fields(hang: Hang) -> WhyFields:
    """The first report, with those of the other processes."""
    first, *others = (report.raw for report in hang.reports)
    return {**first, "others": others}


def _write(folder: Path, hang: Hang, command: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    parts = [f"{command} hangs: {hang.because}", *hang.notes, *(why_text(report) for report in hang.reports)]
    files = {"why.txt": "\n\n".join(parts) + "\n"}
    if hang.reports:
        text = Terminal.json_text(_fields(hang))
        files |= {"why.json": text, "why.html": why_page(hang.reports[0])}
    for name, content in files.items():
        with create_private(folder / name) as file:
            file.write(content.encode("utf-8", "backslashreplace"))


def _annotation(hang: Hang) -> str:
    """One line, as GitHub reads workflow commands: line ends and per cents are written as %XX."""
    text = "\n".join(hang.reports[0].story)
    for character, code in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A")):
        text = text.replace(character, code)
    return f"::error title=The command hangs::{text}"
