# SPDX-License-Identifier: MIT
"""JSON objects about traces: what a trace says of itself, and what ``trace .. --json`` prints.
Imported for its types only.
"""

from __future__ import annotations

from typing import Literal

from flagfinder.shared.fields import NoteFields
from flagfinder.shared.typed import NotRequired, TypedDict

Level = Literal["flow", "values"]
Ended = Literal[
    "target-ended", "spinning", "interrupted", "limit", "printed", "marked", "write-failed"
]


class InfoFields(TypedDict):
    """The circumstances of a recording. ``machine`` and ``options`` hold what the recorder found
    and was told; other recorders hold other things there.
    """

    recorder: str
    tracer: str
    level: Level
    command: list[str]
    working_directory: str
    machine: dict[str, object]
    options: dict[str, object]


class ProcessEndFields(TypedDict):
    """How a process of the program ended: ``status``, ``signal``, or it is still ``running``."""

    pid: int
    status: int | None
    signal: int | None
    running: bool


class EndFields(TypedDict):
    """How a recording ended. ``ts`` is CLOCK_MONOTONIC, ns. ``code`` has what interpreters ran
    then, by thread id: ``python`` of ``flagfinder.spin/1``.
    """

    reason: Ended
    processes: list[ProcessEndFields]
    spinning_threads: list[int]
    dropped_flow_bytes: int
    dropped_value_chunks: int
    dropped_sections: int
    sections: int
    ts: int
    code: NotRequired[dict[str, object]]


class ThreadFields(TypedDict):
    """A recorded thread, and numbers of what it did."""

    tid: int
    name: str
    creator_tid: int | None
    blocks: int
    syscalls: int
    signals: int
    gaps: int


class ProcessFields(TypedDict):
    """An image of a recorded process: what runs between two execs."""

    pid: int
    parent_pid: int
    image: int
    replaced: bool
    path: str
    modules: list[str]
    threads: list[ThreadFields]


class TraceInfoFields(TypedDict):
    """``end`` is null where the recorder was killed."""

    path: str
    bytes: int
    complete: bool
    info: InfoFields
    end: EndFields | None
    notes: list[NoteFields]
    processes: list[ProcessFields]


class TraceCheckFields(TypedDict):
    """A line for each violation."""

    sound: bool
    violations: list[str]


class TraceDumpFields(TypedDict):
    """A stream as text."""

    what: Literal["flow", "values", "events", "blocks", "modules"]
    lines: list[str]


class ExportCounts(TypedDict):
    """What was written. Each format has counts of its own."""

    blocks: NotRequired[int]
    modules: NotRequired[int]
    blocks_left_out: NotRequired[int]
    tid: NotRequired[int]
    instructions: NotRequired[int]
    instructions_left_out: NotRequired[int]
    events: NotRequired[int]
    tables: NotRequired[int]


class TraceExportFields(ExportCounts):
    """The files written, and what is in them. Each format has counts of its own."""

    paths: list[str]


class ImportCounts(TypedDict):
    """How many instructions there were, and how many of them lie in no image."""

    instructions: int
    outside_images: int


class TraceImportFields(ImportCounts):
    """How many instructions there were, and how many of them lie in no image."""

    path: str
