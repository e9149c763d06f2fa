# SPDX-License-Identifier: MIT
"""JSON objects about critical paths: what ``critical-path`` and ``graph bottleneck`` print. Times
are in ns, points in time those of CLOCK_MONOTONIC. Imported for its types only.
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


class ObjectFields(TypedDict):
    """The futex or the file that a call is on, if that is known."""

    word: int | None
    target: str | None


class BottleneckRowFields(TypedDict):
    """What workers wait for: ``thread`` computes, for ``cpu`` there was none free, ``call`` and
    ``timer`` were ended by no thread, at what is ``shared`` the same threads wait and end waits (a
    lock), a ``pool`` is threads of one name. ``held`` is what is shared and these threads had
    meanwhile, while others waited for it. ``waits`` took ``waited`` together; ``gain`` of the
    workers' time goes by meanwhile.
    """

    kind: Literal["thread", "cpu", "call", "timer", "shared", "pool", "unrecorded"]
    names: list[str]
    threads: int
    call: str | None
    on: ObjectFields
    held: ObjectFields | None
    waits: int
    waited: int
    gain: int


class BottleneckFields(_From):
    """What the workers wait for in the end, the largest part of their time (``whole``) first;
    ``knots`` are threads that wait among themselves only.
    """

    to: int
    workers: list[str]
    whole: int
    rows: list[BottleneckRowFields]
    knots: list[list[str]]
    lost: int


class NoBottleneckFields(TypedDict):
    """There is no such thread."""

    workers: list[str]
    rows: list[BottleneckRowFields]


class NoCriticalPathFields(TypedDict):
    """There is no such thread."""

    tid: None
    segments: list[SegmentFields]
    waits: list[BlockedFields]
    threads: list[ShareFields]
