# SPDX-License-Identifier: MIT
"""System calls by user code, in a good recording and in a bad one (Uscope, figure 7)."""

from __future__ import annotations

import errno
import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flagfinder import _core
from flagfinder.graph.events import EventFile
from flagfinder.shared.errors import UnavailableError

if TYPE_CHECKING:
    from flagfinder.graph.call_fields import CallsFields, ProfileFields


@dataclass(frozen=True)
class Calls:
    """How often, and for how many ns in all and at most; blocked time only, unless all calls were
    recorded. ``errors``: how often it failed, by name (``ENOENT``); only where all were.
    """

    count: int
    total: int
    longest: int
    errors: Mapping[str, int]


@dataclass(frozen=True)
class CallDifference:
    """Calls of one sort by one function. ``code`` is "" where no stack was taken: the calls did not
    block.
    """

    call: str
    code: str
    good: Calls
    bad: Calls

    @property
    def more(self) -> int:
        """ns that the bad run spent more in them."""
        return self.bad.total - self.good.total


@dataclass(frozen=True)
class Comparison:
    """``rows``: what differs most in time first, then in number. Spans in ns; ``lost``: events
    missing in either.
    """

    good_span: int
    bad_span: int
    rows: tuple[CallDifference, ...]
    lost: int
    notes: tuple[str, ...]


_NONE: CallsFields = {"count": 0, "total": 0, "longest": 0, "errors": {}}


def compare_events(good: Path | str, bad: Path | str) -> Comparison:
    """Compares two recordings. Raises BadTraceError for a file that is none."""
    profiles: list[ProfileFields] = [json.loads(_core.profile(EventFile(path).core)) for path in (good, bad)]
    by_key = [{(row["call"], row["code"]): row for row in profile["rows"]} for profile in profiles]
    rows = [CallDifference(*key, *(_calls(found.get(key, _NONE)) for found in by_key)) for key in by_key[0] | by_key[1]]
    rows.sort(key=lambda row: (-abs(row.more), -abs(row.bad.count - row.good.count), row.call, row.code))
    notes = []
    if profiles[0]["syscalls"] != profiles[1]["syscalls"]:
        modes = " and ".join(profile["syscalls"] for profile in profiles)
        notes.append(f"recorded with --syscalls {modes}: numbers of calls can't be compared")
    lost = sum(profile["lost"] for profile in profiles)
    return Comparison(profiles[0]["span"], profiles[1]["span"], tuple(rows), lost, tuple(notes))


def _calls(row: CallsFields) -> Calls:
    errors = {errno.errorcode.get(int(number), f"errno {number}"): count for number, count in row["errors"].items()}
    return Calls(row["count"], row["total"], row["longest"], errors)


def plot_comparison(rows: Sequence[CallDifference], path: Path) -> None:
    """Writes a bar chart, its format told by the file's name. Raises UnavailableError without
    matplotlib.
    """
    try:
        figures = importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise UnavailableError(
            "The plot can't be drawn",
            str(error),
            "Install it: pip install 'flagfinder[plot]'.",
            "The table needs nothing more.",
        ) from None
    figure = figures.Figure(figsize=(10, 1.5 + 0.4 * len(rows)), layout="constrained")
    axes = figure.subplots()
    shown = list(reversed(rows))
    for offset, name, color in ((0.2, "good", "#0b7285"), (-0.2, "bad", "#c92a2a")):
        times = [getattr(row, name).total / 1e6 for row in shown]
        axes.barh([place + offset for place in range(len(shown))], times, height=0.38, label=name, color=color)
    axes.set_yticks(range(len(shown)), [f"{row.call}  {row.code}" for row in shown])
    axes.set_xlabel("ms in system calls")
    axes.legend()
    figure.savefig(path)
