# SPDX-License-Identifier: MIT
"""The chain of waits on a screen: the story, how each link is known, what to do next; and all open
calls.
"""

from __future__ import annotations

from collections.abc import Sequence

from flagfinder.live.why_chain import OpenCall, ThreadStack, WhyReport
from flagfinder.live.why_story import Line, Role, legend
from flagfinder.report.names import Piece
from flagfinder.report.terminal import Terminal
from flagfinder.report.units import count
from flagfinder.shared.visible import visible

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


def show_why(terminal: Terminal, reports: Sequence[WhyReport]) -> None:
    """Of each at most six lines of story, then notes and the next command; at the end what the
    marks mean.
    """
    for number, report in enumerate(reports):
        if number:
            terminal.paragraph([(f"process {report.pid} ({report.program}):", "bold")], 2)
        for at, line in enumerate(report.lines):
            terminal.paragraph([("  " if at else "", ""), *_styled(line)], 4)
        show_stacks(terminal, report)
        for note in report.notes:
            terminal.message(note)
        for command in report.next:
            terminal.line(("next: ", "bold"), (command, "cyan"))
    if meaning := legend([(report.links, report.root) for report in reports]):
        terminal.paragraph([(meaning, "dim")])


def show_all(terminal: Terminal, reports: Sequence[WhyReport]) -> None:
    """A line for each process."""
    for report in reports:
        name = report.program.rpartition("/")[2]
        who = [(f"{report.pid} ", "bold"), (f"({name}): ", "")]
        terminal.paragraph([*who, *_styled(report.lines[0])], 4)
    if reports:
        command = f"flagfinder why {reports[0].pid}"
        terminal.line(("next: ", "bold"), (command, "cyan"))
    else:
        terminal.result("no process hangs, as far as can be told")


def _styled(line: Line) -> list[Piece]:
    return [(text, _STYLES[role]) for text, role in line]


def show_stacks(terminal: Terminal, report: WhyReport) -> None:
    """Threads that have the same open are told together; so are those that run no code of the
    program's author, if others do.
    """
    alike: dict[tuple[str | None, tuple[str, ...]], list[ThreadStack]] = {}
    idle = [stack for stack in report.stacks if stack.is_idle]
    if len(idle) in (1, len(report.stacks)):
        idle = []
    for stack in report.stacks:
        if stack not in idle:
            open_calls = (f"{frame.spot} {sorted(frame.locals.items())}" for frame in stack.frames)
            what = (stack.call, tuple(open_calls))
            alike.setdefault(what, []).append(stack)
    for group in alike.values():
        terminal.result("")
        terminal.paragraph([(_title(group), "bold")], 2)
        for frame in group[0].frames:
            terminal.paragraph(_frame(frame), 6)
            for name, value in frame.locals.items():
                terminal.paragraph([(f"      {visible(name)} = {visible(value)}", "")], 10)
    if idle:
        terminal.result("")
        terminal.paragraph([(f"{_title(idle)}, without code of the program", "")], 2)


def _title(group: list[ThreadStack]) -> str:
    names = dict.fromkeys(stack.name for stack in group)
    ids = ", ".join(str(stack.tid) for stack in group[:_IDS])
    more = f" and {len(group) - _IDS} more" if len(group) > _IDS else ""
    others = len(names) - _IDS
    called = ", ".join(list(names)[:_IDS]) + (f" and {others} more" if others > 0 else "")
    who = f"thread {ids}" if len(group) == 1 else f"{count(len(group), 'thread')}: {ids}{more}"
    calls = dict.fromkeys(stack.call for stack in group if stack.call is not None)
    does = f"in {', '.join(calls)}" if calls else "runs"
    return f"{who} ({called}), {does}"


def _frame(frame: OpenCall) -> list[Piece]:
    doubt = "" if frame.sure else " ?"
    return [("  ", ""), (str(frame.spot), "bold" if frame.own else ""), (doubt, "yellow")]
