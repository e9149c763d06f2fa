# SPDX-License-Identifier: MIT
"""A thread's Python code on a screen: its loop, what ends that, and the functions on its stack."""

from __future__ import annotations

from pathlib import PurePath

from rich.text import Text

from flagfinder.interpreters.python import PythonCode, PythonFrame, PythonLoop
from flagfinder.report.lines import label_line
from flagfinder.report.terminal import Terminal
from flagfinder.report.units import count

_SOURCE_SHOWN = 6
_CALLS_SHOWN = 4
_FRAMES_SHOWN = 5
_KINDS = {
    "waits": "a loop that only asks and pauses",
    "mixed": "a loop that mostly pauses, but does other things, too",
    "works": "a loop that does more than wait",
    "counts": "a loop that comes to an end by itself",
    "endless": "a loop that nothing in it ends, unless an exception does",
}


def show_python(terminal: Terminal, code: PythonCode, explain: bool) -> None:
    """The loop, what ends it, and the stack."""
    loop = code.loop
    if loop is not None:
        _show_loop(terminal, code, loop, explain)
    elif code.note is not None:
        label_line(terminal, "no loop", Text(f"in Python could be told: {code.note}"))
    for number, frame in enumerate(code.frames[: None if explain else _FRAMES_SHOWN]):
        label_line(terminal, "" if number else "Python", _frame(frame))
    left = len(code.frames) - _FRAMES_SHOWN
    if left > 0 and not explain:
        label_line(terminal, "", Text(f"and {left} more: --explain"))


def python_calls(code: PythonCode) -> str:
    """The innermost calls in one line, and what ends the loop that they are in."""
    first = code.frames[0]
    names = " < ".join(frame.function for frame in code.frames[:_CALLS_SHOWN])
    until = (
        f", until {code.loop.when}" if code.loop is not None and code.loop.when is not None else ""
    )
    return f"{names} ({PurePath(first.file).name}:{first.line}){until}"


def _show_loop(terminal: Terminal, code: PythonCode, loop: PythonLoop, explain: bool) -> None:
    where = Text(loop.function, "cyan").append(
        f": {_KINDS[loop.kind]}, at {code.seen} of {count(code.looks, 'look')}"
    )
    label_line(terminal, "loops in", where)
    label_line(terminal, "", Text(f"{loop.file}:{loop.line}", "cyan"))
    shown = loop.source if explain else loop.source[:_SOURCE_SHOWN]
    for line in shown:
        label_line(terminal, "", Text(f"    {line}"))
    if len(shown) < len(loop.source):
        label_line(terminal, "", Text(f"    .. {len(loop.source) - len(shown)} more lines", "dim"))
    if loop.when is None and not explain:
        return  # it is not waited for
    for number, way in enumerate(loop.exits):
        text = Text(way.when or "always", "bold").append(
            f" (line {way.line}, {_WAYS[way.way]})", "default"
        )
        label_line(terminal, "" if number else "ends when", text)
        for name, source in way.where.items():
            label_line(terminal, "", Text(f"    {name} is {source}"))
    for number, value in enumerate(loop.values):
        label_line(terminal, "" if number else "value", Text(f"{value.name} = {value.value}"))


_WAYS = {
    "test": "the loop's test",
    "break": "break",
    "return": "return",
    "raise": "raise",
    "exhausted": "no more",
}


def _frame(frame: PythonFrame) -> Text:
    return Text(f"{frame.file}:{frame.line}", "cyan").append(f"  {frame.function}", "dim")
