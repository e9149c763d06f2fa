# SPDX-License-Identifier: MIT
"""JSON objects about recording: what ``record --json`` prints, and what the debugger's half of a
recording by steps sends. Imported for its types only.
"""

from __future__ import annotations

from typing import Literal

from flagfinder.shared.fields import NoteFields
from flagfinder.shared.typed import TypedDict
from flagfinder.trace.fields import Ended


class RecordFields(TypedDict):
    """``status`` and ``signal`` are the program's, both null if it still runs; ``ended_by`` is the
    text that was printed, or the mark's. ``ns`` is how long it was recorded. ``exit_code`` is the
    command's own.
    """

    path: str
    pid: int
    ended: Ended
    status: int | None
    signal: int | None
    threads: int
    ns: int
    stored_bytes: int
    flow_bytes: int
    values_bytes: int
    lost_flow_bytes: int
    lost_value_chunks: int
    spinning_threads: list[int]
    notes: list[NoteFields]
    ended_by: str | None
    exit_code: int


class RecordCheckFields(TypedDict):
    """The tracer that works here."""

    tracer: str
    key: str
    lost_patches: list[str]
    works: Literal[True]


class FrameFields(TypedDict):
    """A call site; ``offset`` in hex."""

    module: str
    offset: str
    function: str | None


class StartFields(TypedDict):
    """Where a thread stands when a recording by steps begins: ``facts`` in
    ``lldb_scripts/ff_start.py``.
    """

    pid: int
    tid: int
    path: str
    name: str
    pc: int
    sp: int
    fs_base: int
    ts: int
    stack: list[FrameFields]
    threads: int
