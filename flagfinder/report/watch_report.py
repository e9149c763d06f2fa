# SPDX-License-Identifier: MIT
"""A watch on a screen: what is watched, one line for each event as it comes, the totals."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from flagfinder.flags.code import Code
from flagfinder.report.code import code_text
from flagfinder.report.terminal import Terminal
from flagfinder.report.units import count

if TYPE_CHECKING:
    from flagfinder.watch.fields import EndFields, EventFields, HeaderFields

_LINES_A_SECOND = 100
_STACK_SHOWN = 2
_INDENT = 16
_KINDS = {
    "data_flag_write": ("write", "bold red"),
    "data_flag_read": ("read", "green"),
    "data_flag_access": ("access", "yellow"),
}
_REASONS = {
    "until": "the condition was met",
    "duration": "the time is over",
    "target-ended": "the process ended",
    "interrupted": "interrupted",
}


def show_header(terminal: Terminal, header: HeaderFields) -> None:
    """What is watched, with the values at the start."""
    for watch in header["watches"]:
        number = f"[{watch['watch']}] " if len(header["watches"]) > 1 else ""
        if watch["type"] == "site":
            terminal.result(
                Text(f"hooking {number}", "bold").append(f"{watch['name']}: {watch['instruction']}")
            )
            continue
        what = "reads and writes" if watch["access"] == "read-write" else "writes"
        text = Text(f"watching {number}", "bold").append(watch["name"], "bold cyan")
        text.append(f": {what} of {count(watch['size'], 'byte')} at {watch['address']}")
        if watch["value"] is not None:
            text.append(f", now {watch['value']}")
        terminal.result(text)


class LiveEvents:
    """Prints events as they come, at most a hundred a second: nobody reads more, and a terminal
    holds the watch up.
    """

    def __init__(self, terminal: Terminal, header: HeaderFields) -> None:
        self._terminal = terminal
        self._start = int(header["started"])
        self._several = len(header["watches"]) > 1
        self._left = _LINES_A_SECOND
        self._second = time.monotonic()
        self._skipped = 0

    def show(self, lines: list[str]) -> None:
        """A batch of lines of the output."""
        now = time.monotonic()
        if now - self._second >= 1:
            self._say_skipped()
            self._second, self._left = now, _LINES_A_SECOND
        shown, self._left = lines[: self._left], max(0, self._left - len(lines))
        self._skipped += len(lines) - len(shown)
        for line in shown:
            self._event(json.loads(line))

    def close(self) -> None:
        """Says how many events were skipped, after the last batch."""
        self._say_skipped()

    def _say_skipped(self) -> None:
        if self._skipped:
            self._terminal.result(
                Text(f"  .. and {count(self._skipped, 'more event')} in this second", "dim")
            )
            self._skipped = 0

    def _event(self, event: EventFields) -> None:
        word, style = _KINDS[event["event"]]
        text = Text(f"{(event['ts'] - self._start) / 1e9:12.6f} s  ", "dim")
        if self._several:
            text.append(f"[{event['watch']}] ")
        text.append(f"{word:<6}", style)
        text.append(f" {_values(event)}", "bold")
        text.append(f"  thread {event['tid']} ({event['thread']})")
        if event.get("reads", 1) > 1:
            text.append(f", {count(event['reads'], 'time')}")
        if "ref" in event:
            text.append(f"  object {event['ref']}")
        text.append("  in ").append_text(code_text(Code.from_raw(event["code"])))
        if "syscall" in event:
            text.append(f" (by the kernel, system call {event['syscall']})")
        self._terminal.paragraph(text, _INDENT)
        for caller in event["stack"][:_STACK_SHOWN]:
            text = Text(f"{'':{_INDENT}}called from ")
            self._terminal.paragraph(text.append_text(code_text(Code.from_raw(caller))), _INDENT)


def _values(event: EventFields) -> str:
    value = event["value"] or "?"
    if event["event"] == "data_flag_write":
        return f"{event['previous'] or '?'} -> {value}"
    return str(value)


def show_summary(terminal: Terminal, summary: EndFields, output: Path | None) -> None:
    """The totals, to stderr; losses always."""
    reason = _REASONS[summary["reason"]]
    parts = [count(summary["writes"], "write")]
    if summary["reads"]:
        parts.append(count(summary["reads"], "read"))
    lost = summary["lost"]["total"]
    ending = "" if lost else "; nothing lost"
    where = f", {count(summary['events'], 'event')} in {output}" if output is not None else ""
    terminal.message(f"{reason}; {', '.join(parts)}{where}{ending}")
    if summary["crowded"]:
        reads = count(summary["crowded"], "read")
        terminal.message(f"{reads} by too many readers at once are listed one by one; none is lost")
    if lost:
        cpus = ", ".join(
            f"CPU {cpu}: {number:,}" for cpu, number in summary["lost"]["cpus"].items()
        )
        terminal.warning(
            f"lost {lost:,} of {summary['hits']:,} accesses, the buffer was full ({cpus})"
        )
