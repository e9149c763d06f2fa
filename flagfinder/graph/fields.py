# SPDX-License-Identifier: MIT
"""JSON objects about events and their graph: what the verbs from ``events`` to ``overhead`` print.
Times are in ns, points in time those of CLOCK_MONOTONIC. Imported for its types only.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from flagfinder.graph.call_fields import HotFields
from flagfinder.shared.fields import NoteFields

HangClass = Literal["LongRunning", "RepeatedYield", "HotCalls", "LongWait", "Unknown"]
Topic = Literal["baseline", "link"]
EdgeKind = Literal[
    "wake",
    "ipc",
    "timer",
    "signal",
    "fork",
    "exit",
    "flag",
    "weak",
    "interrupt",
    "unknown",
    "io_uring",
    "holds",
    "peer",
]
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
    """A moment that somebody marked."""

    ts: int
    text: str


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


class GapFields(TypedDict):
    """Events that are missing on a CPU."""

    cpu: int
    since: int
    until: int
    count: int


class GraphInfoFields(TypedDict):
    """An event graph in numbers; ``edges`` are by kind."""

    span: int
    events: int
    vertices: int
    edges: dict[str, int]
    threads: int
    stacks: int
    command: list[str]
    flag_events: int
    marks: list[MarkFields]
    gaps: list[GapFields]
    lost: int


class GraphBuildFields(GraphInfoFields):
    """An event graph in numbers, and the file that it was written to."""

    file: str


class ThreadMetaFields(TypedDict):
    """A thread of a graph. ``priority`` is the kernel's, 0 where it was never seen."""

    tid: int
    pid: int
    name: str
    kernel: bool
    priority: int


class PlaceFields(TypedDict):
    """A place in code: an address in a file, as linked."""

    module: str
    offset: int


class MetaFields(TypedDict):
    """What a graph has beside its vertices and edges, as the engine hands it over; a part of it.

    ``stacks`` are numbers in ``sites``, innermost first.
    """

    first: int
    last: int
    threads: list[ThreadMetaFields]
    sites: list[str]
    stacks: list[list[int]]


class CauseFields(TypedDict):
    """What made a vertex begin. ``vertex``, ``tid`` and ``thread`` are null where no thread did."""

    edge: EdgeKind
    ts: int
    vertex: int | None
    tid: int | None
    thread: str | None
    stack: list[str]
    boosted: bool


class RanFunctionFields(TypedDict):
    """A function in how many samples the thread was found; in the kernel it is the call, as in
    ``read()``.
    """

    function: str
    samples: int


class RanCallFields(TypedDict):
    """System calls that did not block: ``total`` is from entry to return, ``errors`` failed."""

    call: str
    count: int
    total: int
    errors: int


class RanFields(TypedDict):
    """What a thread spent its time on, most first: ``samples`` by the clock, every 4 ms, and calls
    where all were recorded.
    """

    samples: int
    functions: list[RanFunctionFields]
    calls: list[RanCallFields]


class VertexFields(TypedDict):
    """What a thread did from wake to wait; ``ends_in`` is the call that it blocks in at the end, at
    ``stack``, innermost first. ``futex`` is the address of the word that a futex call waits on.
    ``ran`` is null where it ran too shortly.
    """

    vertex: int
    tid: int
    pid: int
    thread: str
    start: int
    dur: int
    run: int
    ends_in: str | None
    target: str | None
    futex: str | None
    stack: list[str]
    result: int | None
    yields: int
    flags: int
    ran: RanFields | None
    causes: list[CauseFields]


class GraphQueryFields(TypedDict):
    """Vertices of a graph."""

    vertices: list[VertexFields]


class GraphExportFields(TypedDict):
    """The files written."""

    files: list[str]


class StepFields(TypedDict):
    """A vertex on the way from a hang to its cause. ``edge``: how it caused the step before."""

    vertex: int
    tid: int
    thread: str
    start: int
    dur: int
    edge: EdgeKind | None
    stack: list[str]


# ``class`` is a word of Python's own, so its field can't stand in a class.
_Class = TypedDict("_Class", {"class": HangClass})
_NoClass = TypedDict("_NoClass", {"class": None})
_MaybeClass = TypedDict("_MaybeClass", {"class": HangClass | None})


class SetOffFields(TypedDict):
    """Who made a thread begin with something, and how."""

    tid: int
    thread: str
    edge: EdgeKind


class StarvedFields(TypedDict):
    """For how long a thread could run and had no CPU, ns, and who had it; null where that was not
    recorded.
    """

    dur: int
    tid: int | None
    thread: str | None


class InversionFields(TypedDict):
    """A less urgent thread had the lock that a more urgent one waited for."""

    waiter: int
    holder: int
    starved: int
    instead_tid: int | None
    instead: str | None


class CulpritFields(_Class):
    """A thread that did something unusual while others waited for it. ``depth`` is how far from the
    hang it is; ``places`` are those of ``stack``, ``places_before`` where it blocked before that;
    ``set_off`` who made it begin: sent the message that it works on, woke it, started it; ``hot``
    the call of HotCalls, ``starved`` that it mostly had no CPU, ``inversion`` that it had the lock
    that a more urgent thread waited for, ``ran`` what it spent its time on, if it ran.
    """

    vertex: int
    tid: int
    pid: int
    thread: str
    start: int
    dur: int
    doing: str
    depth: int
    stack: list[str]
    places: list[PlaceFields | None]
    places_before: list[PlaceFields | None]
    call: str | None
    set_off: SetOffFields | None
    hot: HotFields | None
    starved: StarvedFields | None
    inversion: InversionFields | None
    ran: RanFields | None


class ChoiceFields(TypedDict):
    """A possible answer; what does not apply is null."""

    vertex: int | None
    tid: int | None
    thread: str | None
    start: int | None
    dur: int | None
    edge: EdgeKind | None
    by_tid: int | None
    by_thread: str | None
    stack: list[str]


class QuestionFields(TypedDict):
    """Which wait went as it should, or which cause to follow. ``start``: of the wait that is
    compared, or of the vertex that is explained.
    """

    topic: Topic
    vertex: int
    tid: int
    thread: str
    start: int
    choices: list[ChoiceFields]


class AskedFields(QuestionFields):
    """A question with its answer: the number of a choice, from 1."""

    answer: int


class MemberFields(TypedDict):
    """A thread in a circle."""

    tid: int
    thread: str


class DiagnosisFields(_Class):
    """What is known about a hang. ``baseline`` is the vertex of the wait that went well,
    ``compared`` that wait; ``path`` leads from the hang to its causes; ``culprits`` has the root
    first; in ``circle`` each thread waits for the next, and the last for the first; ``hot`` is the
    call of HotCalls.
    """

    thread: StepFields
    doing: str
    start: int
    dur: int
    hot: HotFields | None
    unfinished: bool
    baseline: StepFields | None
    compared: ChoiceFields | None
    path: list[StepFields]
    culprits: list[CulpritFields]
    circular: bool
    circle: list[MemberFields]
    advice: list[str]
    questions: int
    asked: list[AskedFields]
    lost: int


class NoDiagnosisFields(_NoClass):
    """No thread did anything for a millisecond."""

    culprits: list[CulpritFields]
    path: list[StepFields]
    questions: int


class OutcomeFields(TypedDict):
    """What the engine answers: either of the two."""

    diagnosis: NotRequired[DiagnosisFields]
    question: NotRequired[QuestionFields]


class ReportFields(_MaybeClass):
    """The page written; null where there is no hang."""

    file: str | None


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
    """The recorders that took the mark, by process id."""

    recorders: list[int]
