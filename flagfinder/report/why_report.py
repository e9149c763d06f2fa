# SPDX-License-Identifier: MIT
"""The chain of waits on a screen: the story, how each link is known, what to do next."""

from __future__ import annotations

import re

from rich.text import Text

from flagfinder.live.why_chain import WhyReport
from flagfinder.report.terminal import Terminal

_MARK = re.compile(r" (\[(?:seen|proved|by code|assumed)\])$")
_STYLES = {"[seen]": "green", "[proved]": "green", "[by code]": "yellow", "[assumed]": "yellow"}


def show_why(terminal: Terminal, report: WhyReport) -> None:
    """At most six lines of story, then commands."""
    for number, line in enumerate(report.story):
        head, separator, rest = line.partition(": ")
        text = (
            Text(head + separator, "bold green" if report.found else "bold yellow")
            if not number
            else Text(line)
        )
        terminal.paragraph(text.append(rest) if not number else _marked(line), 2)
    for note in report.notes:
        terminal.message(note)
    for command in report.next:
        terminal.result(Text("next: ", "bold").append(command, "cyan"))


def _marked(line: str) -> Text:
    found = _MARK.search(line)
    if found is None:
        return Text(line)
    return Text(line[: found.start(1)]).append(found[1], _STYLES[found[1]])
