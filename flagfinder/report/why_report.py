# SPDX-License-Identifier: MIT
"""The chain of waits on a screen: the story, how each link is known, what to do next; and all open
calls.
"""

from __future__ import annotations

from rich.text import Text

from flagfinder.live.why_chain import OpenCall, ThreadStack, WhyReport
from flagfinder.live.why_story import Line, Role
from flagfinder.report.terminal import Terminal
from flagfinder.report.units import count

_STYLES: dict[Role, str] = {
    "": "",
    "fault": "bold red",
    "unknown": "bold yellow",
    "waits": "bold",
    "place": "bold",
    "sure": "dim",
    "unsure": "yellow",
}
_IDS = 4


def show_why(terminal: Terminal, report: WhyReport) -> None:
    """At most six lines of story, then notes and the next command."""
    for line in report.lines:
        terminal.paragraph(_styled(line), 2)
    show_stacks(terminal, report)
    for note in report.notes:
        terminal.message(note)
    for command in report.next:
        terminal.result(Text("next: ", "bold").append(command, "cyan"))


def _styled(line: Line) -> Text:
    return Text.assemble(*((text, _STYLES[role]) for text, role in line))


def show_stacks(terminal: Terminal, report: WhyReport) -> None:
    """Threads that have the same open are told together."""
    alike: dict[tuple[str | None, tuple[str, ...]], list[ThreadStack]] = {}
    for stack in report.stacks:
        what = (stack.call, tuple(str(frame.spot) for frame in stack.frames))
        alike.setdefault(what, []).append(stack)
    for group in alike.values():
        terminal.result("")
        terminal.paragraph(Text(_title(group), "bold"), 2)
        for frame in group[0].frames:
            terminal.paragraph(_frame(frame), 6)


def _title(group: list[ThreadStack]) -> str:
    names = dict.fromkeys(stack.name for stack in group)
    ids = ", ".join(str(stack.tid) for stack in group[:_IDS])
    more = f" and {len(group) - _IDS} more" if len(group) > _IDS else ""
    who = f"thread {ids}" if len(group) == 1 else f"{count(len(group), 'thread')}: {ids}{more}"
    does = f"in {group[0].call}" if group[0].call is not None else "runs"
    return f"{who} ({', '.join(list(names)[:_IDS])}), {does}"


def _frame(frame: OpenCall) -> Text:
    doubt = "" if frame.sure else " ?"
    return Text("  ").append(str(frame.spot), "bold" if frame.own else "").append(doubt, "yellow")
