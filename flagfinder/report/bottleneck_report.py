# SPDX-License-Identifier: MIT
"""The bottleneck of the whole on a screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from flagfinder.report.terminal import Terminal
from flagfinder.report.units import duration

if TYPE_CHECKING:
    from flagfinder.graph.path_fields import BottleneckFields, BottleneckRowFields, ObjectFields

_ROWS = 6
_NAMES = 2


def show_bottleneck(terminal: Terminal, found: BottleneckFields) -> None:
    """For what the workers wait most, and the other things, each with what it would bring."""

    def part(row: BottleneckRowFields) -> str:
        return f"{100 * row['gain'] / found['whole']:.0f} %"

    workers = ", ".join(found["workers"])
    for row in found["rows"][:1]:
        terminal.result(
            Text(f"{workers}: at most {part(row)} of the time is gained without ", "default")
            .append(bottleneck_text(row), "bold cyan")
            .append(".")
        )
    terminal.result(Text("  gained   waits   waited  for", "bold"))
    for row in found["rows"][:_ROWS]:
        terminal.result(
            f"  {part(row):>6} {row['waits']:>7,} {duration(row['waited']):>8}  "
            f"{bottleneck_text(row)}"
        )
    for knot in found["knots"]:
        terminal.result("  They wait for nobody but each other: " + ", ".join(knot))
    if found["lost"]:
        terminal.warning(f"{found['lost']:,} events were lost: waits may be missing")


def bottleneck_text(row: BottleneckRowFields) -> str:
    """A thing that is waited for: ``what store computes``, ``fsync of writer on /var/lib/db``."""
    more = [".."] if len(row["names"]) > _NAMES else []
    names = ", ".join(row["names"][:_NAMES] + more)
    held = f" while others wait for {_object(row['held'])}" if row["held"] else ""
    if row["kind"] == "thread":
        return f"what {names} computes{held}"
    if row["kind"] == "cpu":
        return "a lack of processors"
    if row["kind"] == "unrecorded":
        return f"what {names} does, which was not recorded"
    if row["kind"] == "pool":
        return f"waits for the {row['threads']} threads {names}"
    if row["kind"] == "shared":
        return f"{_object(row['on'])}, which {row['threads']} threads share: {names}"
    on = f" on {row['on']['target']}" if row["on"]["target"] else ""
    return f"{row['call'] or 'a wait'} of {names}{on}{held}"


def _object(one: ObjectFields) -> str:
    return (
        f"the futex {one['word']:#x}" if one["word"] is not None else one["target"] or "something"
    )
