# SPDX-License-Identifier: MIT
"""What recordings of many hosts tell, on a screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flagfinder.report.terminal import Terminal
from flagfinder.report.units import count, duration, short_time

if TYPE_CHECKING:
    from flagfinder.hosts.fields import (
        HostsShareFields,
        HostsTopRow,
        HostsWaitsRow,
        IngestedFields,
    )


def show_ingested(terminal: Terminal, recordings: Sequence[IngestedFields]) -> None:
    """A line for each recording."""
    for one in recordings:
        rows = f"{count(one['waits'], 'wait')}, {count(one['sends'], 'message')} sent"
        terminal.result(f"{one['host']}: {rows} ({one['file']})")


def show_top(terminal: Terminal, rows: Sequence[HostsTopRow]) -> None:
    """Where threads wait most."""
    _none(terminal, rows, "No wait was recorded.")
    for row in rows:
        terminal.result(
            f"{_times(row)}  {row['thread']}@{row['host']} in {row['call'] or 'no call'}"
        )


def show_waits(terminal: Terminal, rows: Sequence[HostsWaitsRow]) -> None:
    """Who waits for whom."""
    _none(terminal, rows, "Of no wait it is known which thread ended it.")
    for row in rows:
        whom = f"{row['by_thread']}@{row['by_host']}"
        terminal.result(f"{_times(row)}  {row['thread']}@{row['host']} for {whom}")


def show_shares(terminal: Terminal, found: HostsShareFields) -> None:
    """What made up a time, in parts of all of it."""
    _none(terminal, found["rows"], "No such time was recorded.")
    if found["rows"]:
        terminal.result(f"{duration(found['whole'])} are made up of")
    for row in found["rows"]:
        part = 100 * row["total"] / found["whole"]
        told = {"runs": "runs", "unknown": "was not recorded"}
        what = told.get(row["what"], f"waits: {row['what']}")
        who = f"{row['thread']}@{row['host']}"
        terminal.result(f"{part:6.1f}% {short_time(row['total']):>9}  {who} {what}")


def _none(terminal: Terminal, rows: Sequence[object], text: str) -> None:
    if not rows:
        terminal.result(text)


def _times(row: HostsTopRow | HostsWaitsRow) -> str:
    longest = short_time(row["longest"])
    return f"{short_time(row['total']):>9} {count(row['count'], 'time'):>12}, longest {longest:>9}"
