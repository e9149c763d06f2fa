# SPDX-License-Identifier: MIT
"""The data flags of a run on a screen: a flag in three lines, the one that ended the most waits
first.
"""

from __future__ import annotations

from rich.text import Text

from flagfinder.flags.discover import Discovered, Discovery
from flagfinder.flags.flags import ThreadName
from flagfinder.report.code import code_text
from flagfinder.report.diff_report import LOOPS
from flagfinder.report.lines import label_line
from flagfinder.report.terminal import Terminal
from flagfinder.report.units import count, hexadecimal

_SHOWN = 20
_WRITERS = 2
_THREADS = 3


def show_discovery(terminal: Terminal, found: Discovery) -> None:
    """The whole answer."""
    if found.flags:
        title = f"{count(len(found.flags), 'data flag')}: words that a thread polled until they"
        terminal.paragraph(Text(f"{title} changed", "bold"), 2)
    else:
        terminal.paragraph(Text("no data flag: no polled word was seen to end a loop", "bold"), 2)
    for one in found.flags[:_SHOWN]:
        _show(terminal, one)
    if len(found.flags) > _SHOWN:
        terminal.result(Text(f"{len(found.flags) - _SHOWN} more: --json lists them", "dim"))
    seen = f"{count(found.ways_out, 'way')} out of repeated loops seen"
    if found.unexplained:
        seen += (
            f"; behind {found.unexplained} of them a word had changed, but no other thread's write "
            "to it was recorded"
        )
    label_line(terminal, "note", Text(seen))
    if found.flags:
        told = "stores have no time: which of those that could end a wait did it is not known"
        label_line(terminal, "note", Text(told))
    for note in found.notes:
        label_line(terminal, "note", Text(note))


def _show(terminal: Terminal, one: Discovered) -> None:
    flag = one.flag
    terminal.paragraph(Text(f"{flag.rank}. ").append(flag.name, "bold"), 4)
    told = f"{_threads(one.polled_by)}: {count(one.waits, 'wait')}, {count(one.rounds, 'round')}"
    line = Text(told)
    if one.loop is not None:
        line.append(f", {LOOPS.get(one.loop.kind, 'a loop')}")
        if one.loop.function:
            line.append(" in ").append(one.loop.function, "cyan")
    label_line(terminal, "polled by", line)
    if flag.value_spin is not None and flag.value_exit is not None:
        change = f"{hexadecimal(flag.value_spin)} -> {hexadecimal(flag.value_exit)}"
        label_line(terminal, "ends when", Text(f"{flag.exit_when or 'it changes'} ({change})"))
    for writer in flag.writers[:_WRITERS]:
        who = Text(f"{writer.thread or 'thread'} ({writer.tid})")
        if writer.code is not None:
            who.append(" at ").append_text(code_text(writer.code))
        label_line(terminal, "stored by", who)
    if len(flag.writers) > _WRITERS:
        label_line(terminal, "", Text(f"and {len(flag.writers) - _WRITERS} more places"))


def _threads(threads: tuple[ThreadName, ...]) -> str:
    told = [f"{one.name or 'thread'} ({one.tid})" for one in threads[:_THREADS]]
    more = len(threads) - _THREADS
    return ", ".join(told) + (f" and {more} more" if more > 0 else "")
