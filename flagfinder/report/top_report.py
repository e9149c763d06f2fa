# SPDX-License-Identifier: MIT
"""Waits and delays on a screen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from flagfinder.graph.top import Top
from flagfinder.report.terminal import Terminal
from flagfinder.report.units import bar, count, short_time

if TYPE_CHECKING:
    from flagfinder.graph.top_fields import (
        BarFields,
        EventsTopFields,
        TimesFields,
        TopCallFields,
        TopDelayFields,
        TopEarlierFields,
        TopEnded,
        TopThreadFields,
        TopWaitFields,
    )

Row = TypeVar("Row")
_FRAMES = 8  # call sites shown of a stack
_OTHERS = 3  # threads shown that had a processor


def top_fields(top: Top) -> EventsTopFields:
    """What ``events top --json`` prints."""
    return {**top.fields, "ended": cast("TopEnded", top.ended), "exit_status": top.exit_status}


def _who(thread: TopThreadFields) -> str:
    if not thread["pid"]:
        return f"thread {thread['tid']}"
    return f"thread {thread['tid']} ({thread['thread']}) of process {thread['pid']}"


def _times(times: TimesFields) -> str:
    unfinished = f", {times['unfinished']:,} unfinished" if times["unfinished"] else ""
    return (
        f"{short_time(times['total']):>9} {count(times['count'], 'time'):>12}, longest "
        f"{short_time(times['longest'])}{unfinished}"
    )


def _histogram(terminal: Terminal, bars: Sequence[BarFields]) -> None:
    most = max((one["count"] for one in bars), default=0)
    for one in bars:
        to = "" if one["to"] is None else short_time(one["to"])
        label = f"{short_time(one['from']):>11} to {to:<8}{one['count']:>9,} "
        terminal.line((label, ""), (bar(one["count"], most), "cyan"))


def _wait(terminal: Terminal, row: TopWaitFields) -> None:
    failed = f" = {row['errno']}" if row["errno"] else ""
    call = f"  {row['call'] or '(no call)'}{failed}"
    terminal.line((_times(row), ""), (call, "bold"), (f"  {_who(row)}", ""))
    for site in row["stack"][:_FRAMES]:
        terminal.line((f"            {site}", "dim"))
    if len(row["stack"]) > _FRAMES:
        more = len(row["stack"]) - _FRAMES
        terminal.line((f"            {more} more call sites: --json", "dim"))


def _delay(terminal: Terminal, row: TopDelayFields) -> None:
    terminal.line((_times(row), ""), (f"  {_who(row)}", "bold"))
    for other in row["instead"][:_OTHERS]:
        terminal.result(f"{short_time(other['total']):>21} of it {_who(other)} had the processor")
    if len(row["instead"]) > _OTHERS:
        rest = sum(other["total"] for other in row["instead"][_OTHERS:])
        others = count(len(row["instead"]) - _OTHERS, "other thread")
        terminal.result(f"{short_time(rest):>21} of it {others} had the processor")
    _histogram(terminal, row["histogram"])


def _call(terminal: Terminal, row: TopCallFields) -> None:
    call = f"  {row['call'] or '(no call)'}"
    terminal.line((_times(row), ""), (call, "bold"), (f"  {_who(row)}", ""))
    _histogram(terminal, row["histogram"])


def _earlier(terminal: Terminal, row: TopEarlierFields) -> None:
    call = f"  {row['call'] or '(call not known)'}"
    who = f"  {_who(row)}{', unfinished' if row['unfinished'] else ''}"
    terminal.line((f"{short_time(row['dur']):>9} or longer", ""), (call, "bold"), (who, ""))


def _table(
    terminal: Terminal,
    title: str,
    rows: Sequence[Row],
    show: Callable[[Terminal, Row], None],
    limit: int,
) -> None:
    terminal.result("")
    terminal.line((title, "bold"))
    if not rows:
        terminal.result("  nothing")
    for row in rows[:limit]:
        show(terminal, row)
    if len(rows) > limit:
        terminal.message(f"{count(len(rows) - limit, 'more row')}: --limit shows them")


def show_top(terminal: Terminal, top: Top, limit: int) -> None:
    """Blocked time by place, by thread and call, and delays: ``limit`` rows of each."""
    fields = top.fields
    terminal.line((f"counted for {short_time(fields['span'])}", "dim"))
    _table(terminal, "blocked, by place", fields["waits"], _wait, limit)
    _table(terminal, "blocked, by thread and call", fields["calls"], _call, limit)
    _table(terminal, "ready to run, without a processor", fields["delays"], _delay, limit)
    if fields["earlier"]:
        _table(terminal, "blocked since before the counting", fields["earlier"], _earlier, limit)
    if fields["lost"]:
        what = "events are missing" if top.ended == "recorded" else "sums found no room"
        terminal.warning(f"{fields['lost']:,} {what}: numbers are too small")
    if fields["stacks_dropped"]:
        terminal.warning(f"{fields['stacks_dropped']:,} stacks had no room: their waits have none")
