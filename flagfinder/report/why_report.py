# SPDX-License-Identifier: MIT
"""The chain of waits on a screen: the story, how each link is known, what to do next."""

from __future__ import annotations

import re

from rich.text import Text

from flagfinder.live.why_chain import WhyReport
from flagfinder.report.terminal import Terminal

_MARK = re.compile(r" (\[(?:seen|proved|by code|assumed)\])$")
# What nobody will end: no good news, so not green.
_FAULTS = ("deadlock", "ended", "stopped", "frozen")
_STYLES = {"[seen]": "green", "[proved]": "green", "[by code]": "yellow", "[assumed]": "yellow"}


def show_why(terminal: Terminal, report: WhyReport) -> None:
    """At most six lines of story, then commands."""
    for number, line in enumerate(report.story):
        head, separator, rest = line.partition(": ")
        headline = Text.assemble((head + separator, _headline_style(report)), rest)
        terminal.paragraph(_marked(line) if number else headline, 2)
    for note in report.notes:
        terminal.message(note)
    for command in report.next:
        terminal.result(Text("next: ", "bold").append(command, "cyan"))


def _headline_style(report: WhyReport) -> str:
    if not report.found:
        return "bold yellow"
    return "bold red" if report.root.kind in _FAULTS else "bold"


def _marked(line: str) -> Text:
    found = _MARK.search(line)
    if found is None:
        return Text(line)
    return Text(line[: found.start(1)]).append(found[1], _STYLES[found[1]])
