# SPDX-License-Identifier: MIT
"""Which processes of this machine hang.

In: nothing. Out: reports of those that did so twice. Left out is who waits for a client, for input
or for time: that is what an idle process does. Blind spots: a chain whose end nothing tells apart,
and a process that waits for one which only sleeps.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from flagfinder.live.ask_all import ask_all
from flagfinder.live.idleness import Work, work_of
from flagfinder.live.patient import ancestors, processes
from flagfinder.live.tree import descendants
from flagfinder.live.why_chain import WhyReport
from flagfinder.shared.record import dataclass

# Ends of chains that are wrong in themselves.
_FAULTS = ("deadlock", "ended", "stopped", "frozen", "lost-wakeup", "left-locked")
# Of the time between the looks, on a processor or waiting for one: less is no spinning.
_BUSY = 0.9
_PATIENCE = 20.0  # s for each of the two looks


@dataclass(frozen=True)
class Everyone:
    """The reports of those that hang; how many were looked at; and what could not be."""

    reports: tuple[WhyReport, ...]
    count: int
    notes: tuple[str, ...]


def hung(apart: float, timeout: float, told: Callable[[int], object] = lambda _: None) -> Everyone:
    """Looks twice, ``apart`` seconds from each other; each look takes at most ``timeout`` seconds.
    ``told`` hears how many processes are looked at.
    """
    # Daemons are the oldest: if time is short, they are left out.
    pids = sorted(_others(), reverse=True)
    told(len(pids))
    began = time.monotonic()
    before = {pid: work_of([pid]) for pid in pids}
    first = ask_all(pids, timeout, _PATIENCE)
    faults = {one.pid: one for one in first.reports if one.root.kind in _FAULTS}
    time.sleep(max(0.0, began + apart - time.monotonic()))
    passed = time.monotonic() - began
    burning = [pid for pid in pids if _burns(before[pid], work_of([pid]), passed)]
    again = ask_all(list(dict.fromkeys([*faults, *burning])), timeout, _PATIENCE)
    found = [
        one
        for one in again.reports
        if one.pid in burning or (one.pid in faults and _is_same(faults[one.pid], one))
    ]
    # What can't be looked at was said at the first look.
    return Everyone(tuple(found), len(pids), first.notes)


def _is_same(one: WhyReport, other: WhyReport) -> bool:
    """Whether they end in the same fault."""
    ends = [(report.root.kind, report.root.pid, report.root.tid) for report in (one, other)]
    return ends[0] == ends[1]


def _burns(before: Work, now: Work, seconds: float) -> bool:
    """Whether it used a processor all the time, and read and wrote nothing."""
    return (
        bool(now.processes)
        and now.bytes == before.bytes
        and (now.wanted - before.wanted > _BUSY * seconds)
    )


def _others() -> Iterator[int]:
    """Programs that this user may look at, but for this command and those above it."""
    ours = {os.getpid(), *ancestors(os.getpid()), *descendants(os.getpid())}
    for pid in processes():
        process = Path(f"/proc/{pid}")
        try:
            (process / "exe").readlink()  # what is no program, or another user's, has none
        except OSError:
            continue
        if pid not in ours:
            yield pid
