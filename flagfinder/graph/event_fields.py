# SPDX-License-Identifier: MIT
"""JSON objects about recorded events: what the verbs of ``events`` print. Times
are in ns, points in time those of CLOCK_MONOTONIC. Imported for its types only.
"""

from __future__ import annotations

from typing import Literal

from flagfinder.shared.fields import NoteFields
from flagfinder.shared.typed import NotRequired, TypedDict

EventsEnded = Literal["program-ended", "target-ended", "duration", "interrupted", "imported"]


class LostFields(TypedDict):
    """Events that found no room, by CPU those that lost any; processes for which there was none."""

    total: int
    cpus: dict[int, int]
    processes: int


class EventsRecordFields(TypedDict):
    """``exit_status`` is the program's as a shell gives it, null if it still runs."""

    file: str
    ended: EventsEnded
    exit_status: int | None
    events: int
    raw_bytes: int
    file_bytes: int
    lost: LostFields
    notes: list[NoteFields]


class EventsImportFields(TypedDict):
    """``skipped`` has, by name, records that say nothing to a graph."""

    file: str
    events: int
    lost: int
    skipped: dict[str, int]


class EventsCheckFields(TypedDict):
    """A line for each violation, and for what the file can't know."""

    sound: bool
    violations: list[str]
    notes: list[str]


class EventsDumpFields(TypedDict):
    """Events as text."""

    lines: list[str]


class MarkFields(TypedDict):
    """A moment that somebody marked; ``tid``: the thread that hung, if the recorder noticed it;
    ``host``: where that was, in a graph of several.
    """

    ts: int
    text: str
    tid: NotRequired[int]
    host: NotRequired[str]


class BeforeFields(TypedDict):
    """What was dropped, to keep the file small."""

    events: int
    lost: int


class EventsEndFields(TypedDict):
    """How a recording ended. ``lost_cpus`` is by CPU."""

    ts: int
    reason: EventsEnded
    exit_status: int | None
    events: int
    raw_bytes: int
    lost: int
    lost_cpus: dict[str, int]
    stacks_dropped: int
    lost_processes: int


class FinishedFields(EventsEndFields):
    """How a recording ended and what was announced, as the engine hands it over."""

    notes: list[NoteFields]


class EventsInfoFields(TypedDict):
    """A recording of events: what was asked for, and what is in it. ``wakes`` are by the context
    that they came from, ``lost`` is by CPU. ``end`` is null where the recorder was killed.
    """

    recorder: str
    command: list[str]
    pids: list[int]
    everything: bool
    thread_names: list[str]
    syscalls: str
    stacks: str
    stack_budget: int
    stack_copy: int
    contexts: bool
    cpus: int
    host: str
    boot_id: str
    network: bool
    kernel: str
    buffer_bytes: int
    size_bytes: int | None
    before: BeforeFields
    started: int
    started_unix_ns: int
    bytes: int
    span: int
    events: dict[str, int]
    wakes: dict[str, int]
    lost: dict[str, int]
    different_stacks: int
    descriptors: int
    marks: list[MarkFields]
    notes: list[NoteFields]
    damaged_blocks: int
    end: EventsEndFields | None


class OverheadFields(TypedDict):
    """Seconds of each run, without recording and with it; how much longer a recorded one takes, as
    a part of the other's time, and the bounds of that.
    """

    command: list[str]
    proven: bool
    plain: list[float]
    recorded: list[float]
    overhead: float
    low: float
    high: float
    events: int
    lost: int


class MarkedFields(TypedDict):
    """The recorders that took the mark, by process id; ``left_out`` are those of other users."""

    recorders: list[int]
    left_out: list[int]
