# SPDX-License-Identifier: MIT
"""JSON objects about event graphs: what the verbs of ``graph`` print. Times
are in ns, points in time those of CLOCK_MONOTONIC. Imported for its types only.
"""

from __future__ import annotations

from typing import Literal

from flagfinder.graph.event_fields import MarkFields
from flagfinder.shared.typed import TypedDict

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


class GapFields(TypedDict):
    """Events that are missing on a CPU."""

    cpu: int
    since: int
    until: int
    count: int


class HostFields(TypedDict):
    """A host of a graph of several. ``first`` and ``last``: of its recording, in the graph's time,
    which is the first host's. ``added``: what its clock was corrected by when it began; ``widths``:
    how much of that is not known, at best and at worst. ``by``: the host by whose messages, null
    where no message was needed. ``received``: messages from the other hosts.
    """

    name: str
    first: int
    last: int
    pids: list[int]
    command: list[str]
    added: int
    widths: list[int]
    by: int | None
    received: int


class GraphInfoFields(TypedDict):
    """An event graph in numbers; ``edges`` are by kind, ``hosts`` are there if it has several."""

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
    hosts: list[HostFields]


class GraphBuildFields(GraphInfoFields):
    """An event graph in numbers, and the file that it was written to."""

    file: str


class ThreadMetaFields(TypedDict):
    """A thread of a graph. ``priority`` is the kernel's, 0 where it was never seen; ``followed``:
    its switches were recorded; ``host`` is a place in the list of hosts.
    """

    tid: int
    pid: int
    name: str
    kernel: bool
    priority: int
    followed: bool
    host: int


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
    hosts: list[HostFields]


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
    """A function in how many samples the thread was found, and the line that most of them have; in
    the kernel it is the call, as in ``read()``.
    """

    function: str
    line: str | None
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


SortKey = Literal["start", "dur", "run", "wait", "woke"]


class VertexFields(TypedDict):
    """What a thread did from wake to wait; ``ends_in`` is the call that it blocks in at the end, at
    ``stack``, innermost first. ``futex`` is the address of the word that a futex call waits on.
    ``ran`` is null where it ran too shortly. ``wait`` is how long the wait took that it ends in,
    ``woke`` how many vertices of other threads it made begin, or sent something to.
    """

    vertex: int
    tid: int
    pid: int
    thread: str
    start: int
    dur: int
    run: int
    wait: int | None
    woke: int
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
