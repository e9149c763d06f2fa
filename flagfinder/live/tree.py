# SPDX-License-Identifier: MIT
"""Processes with what they started, and ``why`` for all of them.

In: process ids. Out: the reports, the most telling first.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from flagfinder.live.why import WhyReport, why
from flagfinder.shared.errors import FlagfinderError

_PATIENCE = 8.0  # for all processes together
_BUDGET = 0.3


@dataclass(frozen=True)
class Asked:
    """The reports of some processes, the most telling first; ``notes`` name those that could not be
    looked at.
    """

    reports: tuple[WhyReport, ...]
    notes: tuple[str, ...]


def ask(pids: Iterable[int], before: Iterable[WhyReport] = ()) -> Asked:
    """``why`` for each process that no chain of those asked before led to."""
    begin = time.monotonic()
    reports: list[WhyReport] = []
    notes: list[str] = []
    seen = {pid for report in before for pid in _in_chain(report)}
    for pid in pids:
        if pid in seen:
            continue
        if time.monotonic() - begin > _PATIENCE:
            notes.append("not every process was asked: there are too many")
            break
        try:
            report = why(pid, budget=_BUDGET)
        except FlagfinderError as error:
            notes.append(f"process {pid}: {error.what}: {error.found}")
            continue
        reports.append(report)
        seen |= _in_chain(report)
    reports.sort(key=lambda report: not report.found)
    return Asked(tuple(reports), tuple(notes))


def _in_chain(report: WhyReport) -> set[int]:
    owing = (link.owed_by.pid for link in report.links if link.owed_by is not None)
    return {report.pid, *(link.waiter.pid for link in report.links), *owing}


def descendants(pid: int) -> list[int]:
    """Living processes that it started, and those that these started, in the order of
    generations.
    """
    parents = list(_parents())
    found: list[int] = []
    above = {pid}
    while above:
        above = {child for child, parent in parents if parent in above and child not in found}
        found += sorted(above)
    return found


def _parents() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                stat = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
                if stat[0] not in "ZX":
                    yield int(entry.name), int(stat[1])
