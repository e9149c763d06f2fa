"""The event graph: what threads did from wake to wait, and what made each of these stretches begin.

In: a recording of ``flagfinder events record``, and what ``flagfinder watch`` wrote meanwhile. ``docs/graph.md``
describes vertices, edges and the rules by which wakes become edges.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flagfinder import _core
from flagfinder.events import EventFile

_FOREVER = 2**63 - 1
# The layout of Vertex and Edge in core/graph/src/graph.rs.
_VERTEX = np.dtype(
    [(name, "<u8") for name in ("start", "end", "run", "call")]
    + [("result", "<i8"), ("semantics", "<u8")]
    + [(name, "<u4") for name in ("thread", "yields", "flags", "blocks", "stack", "cpu")]
)
_EDGE = np.dtype([("from", "<u4"), ("to", "<u4"), ("ts", "<u8"), ("kind", "<u4"), ("stack", "<u4")])
_NOBODY = 2**32 - 1
_NO_RESULT = -(2**63)

Table = dict[str, np.ndarray]


@dataclass(frozen=True)
class GraphTables:
    """The graph as columns, for bulk work.

    ``vertices``: vertex, tid, pid, thread, start, end, run (ns on a CPU), call (that it blocks in at the end, or ""),
    result ("" where not recorded), yields, flags, cpu (the last), stack (call sites by line, innermost first).
    ``edges``: from (a vertex; -1: no thread is the cause), to, kind, ts, stack (of the waker).
    ``threads``: tid, pid, name, kernel, priority.
    """

    vertices: Table
    edges: Table
    threads: Table

    def named(self) -> list[tuple[str, Table]]:
        """All three with their names."""
        return [("vertices", self.vertices), ("edges", self.edges), ("threads", self.threads)]


class EventGraph:
    """Made by ``build_graph`` or ``open_graph``."""

    def __init__(self, core: _core.EventGraph) -> None:
        self._core = core

    def save(self, path: Path | str) -> None:
        """Writes it to a file that ``open_graph`` reads."""
        self._core.save(os.fspath(path))

    def summary(self) -> dict[str, Any]:
        """Numbers of vertices, of edges by kind, of threads; gaps where events were lost; marks."""
        fields: dict[str, Any] = json.loads(self._core.summary())
        return fields

    def span(self) -> tuple[int, int]:
        """Times of the first and the last event, ns (CLOCK_MONOTONIC)."""
        meta = json.loads(self._core.meta())
        return meta["first"], meta["last"]

    def query(self, tid: int | None = None, start: int = 0, end: int = _FOREVER, limit: int = 1000) -> list[Any]:
        """Vertices that overlap the time from ``start`` to ``end`` (ns), of one thread or all, with their causes."""
        vertices: list[Any] = json.loads(self._core.query(tid or 0, start, end, limit))
        return vertices

    def export_perfetto(self, path: Path | str) -> None:
        """Writes a trace for ui.perfetto.dev: tracks of threads, their runs and waits, arrows for wakes and flags."""
        self._core.export_perfetto(os.fspath(path))

    def tables(self) -> GraphTables:
        """All vertices, edges and threads."""
        meta = json.loads(self._core.meta())
        raw_vertices, raw_edges = self._core.records()
        vertices, edges = np.frombuffer(raw_vertices, _VERTEX), np.frombuffer(raw_edges, _EDGE)
        threads = {name: _column(meta["threads"], name) for name in ("tid", "pid", "name", "kernel", "priority")}
        sites = meta["sites"]
        stacks = np.array(["\n".join(sites[site] for site in stack) for stack in meta["stacks"]] or [""], dtype=object)
        of = vertices["thread"]
        calls, which = np.unique(vertices["call"] >> 48, return_inverse=True)
        names = np.array([_core.call_name(int(call) - 1) if call else "" for call in calls], dtype=object)
        results = np.where(vertices["result"] == _NO_RESULT, "", vertices["result"].astype(str))
        kinds = np.array(_core.edge_kinds(), dtype=object)
        causes = edges["from"].astype(np.int64)
        return GraphTables(
            {
                "vertex": np.arange(len(vertices), dtype=np.int64),
                "tid": threads["tid"][of],
                "pid": threads["pid"][of],
                "thread": threads["name"][of],
                **{name: vertices[name] for name in ("start", "end", "run")},
                "call": names[which],
                "result": results.astype(object),
                "yields": vertices["yields"],
                "flags": vertices["flags"],
                "cpu": vertices["cpu"],
                "stack": stacks[vertices["stack"]],
            },
            {
                "from": np.where(causes == _NOBODY, -1, causes),
                "to": edges["to"].astype(np.int64),
                "kind": kinds[edges["kind"]],
                "ts": edges["ts"],
                "stack": stacks[edges["stack"]],
            },
            threads,
        )

    def critical_path_json(self, thread: int, start: int | None, end: int | None) -> dict[str, Any] | None:
        """The engine's critical path; use ``flagfinder.critical_path`` for the typed one."""
        found = self._core.critical_path(json.dumps({"thread": thread, "from": start, "to": end}))
        fields: dict[str, Any] | None = json.loads(found) if found is not None else None
        return fields

    def diagnose_json(
        self, thread: int | None, at: int | None, preceding: int, answers: Sequence[int] | None
    ) -> dict[str, Any] | None:
        """The engine's diagnosis, or its next question; use ``flagfinder.diagnose`` for the typed one."""
        request = {"thread": thread, "at": at, "preceding": preceding, "answers": answers}
        found = self._core.diagnose(json.dumps(request))
        fields: dict[str, Any] | None = json.loads(found) if found is not None else None
        return fields


def _column(rows: Sequence[dict[str, Any]], name: str) -> np.ndarray:
    """One field of all rows; text as Python strings, which keeps columns small where one name is long."""
    values = [row[name] for row in rows]
    return np.array(values, dtype=object if name == "name" else None)


def build_graph(events: Path | str, flags: Sequence[Path | str] = ()) -> EventGraph:
    """Builds the graph of a recording. ``flags``: files of ``flagfinder watch -o``.

    Time and memory are linear in the events. Raises BadTraceError for a file that is no recording.
    """
    watched = [Path(path).read_text(encoding="utf-8") for path in flags]
    return EventGraph(_core.EventGraph.build(EventFile(events).core, watched))


def open_graph(path: Path | str) -> EventGraph:
    """Reads a saved graph. Raises BadTraceError for what is none, is damaged or of another version."""
    return EventGraph(_core.EventGraph.open(os.fspath(path)))
