# SPDX-License-Identifier: MIT
"""JSON objects about critical paths: what ``critical-path`` prints. Times are in ns, points in time
those of CLOCK_MONOTONIC. Imported for its types only.
"""

from __future__ import annotations

from typing import Literal

from flagfinder.graph.fields import EdgeKind, InversionFields
from flagfinder.shared.typed import TypedDict


class SegmentFields(TypedDict):
    """A part of a critical path: what a thread did, or what it waited for that no thread did."""

    vertex: int
    tid: int
    thread: str
    start: int
    dur: int
    state: Literal["runs", "waits"]
    run: int
    call: str | None
    ended_by: str | None
    depth: int


class BlockedFields(TypedDict):
    """A wait that another thread ended."""

    tid: int
    thread: str
    start: int
    dur: int
    call: str | None
    target: str | None
    edge: EdgeKind
    by_tid: int
    by_thread: str
    stack: list[str]
    wake_stack: list[str]
    kind: Literal["lock", "condition"] | None
    inversion: InversionFields | None
    depth: int


class ShareFields(TypedDict):
    """How much of a path is a thread's: ``dur``, of which ``run`` on a CPU."""

    tid: int
    thread: str
    dur: int
    run: int


# ``from`` is a word of Python's own, so its field can't stand in a class.
_From = TypedDict("_From", {"from": int})


class CriticalPathFields(_From):
    """What made up the time of a thread; ``threads`` has the largest part first."""

    tid: int
    thread: str
    to: int
    segments: list[SegmentFields]
    waits: list[BlockedFields]
    threads: list[ShareFields]
    lost: int


class NoCriticalPathFields(TypedDict):
    """There is no such thread."""

    tid: None
    segments: list[SegmentFields]
    waits: list[BlockedFields]
    threads: list[ShareFields]
