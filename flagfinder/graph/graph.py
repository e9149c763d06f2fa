# SPDX-License-Identifier: MIT
"""The event graph: what threads did from wake to wait, and what made each of these stretches begin.

In: a recording of ``flagfinder events record``, and what ``flagfinder watch`` wrote meanwhile.
``docs/graph.md`` describes vertices, edges and the rules by which wakes become edges.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flagfinder import _core
from flagfinder.graph.events import EventFile
from flagfinder.shared.errors import BadTraceError
from flagfinder.shared.extra import need_numpy

if TYPE_CHECKING:
    from flagfinder.graph.diagnosis_fields import OutcomeFields
    from flagfinder.graph.fields import GraphInfoFields, MetaFields, VertexFields
    from flagfinder.graph.path_fields import CriticalPathFields
    from flagfinder.graph.tables import GraphTables
    from flagfinder.graph.timeline_fields import TimelineFields

_FOREVER = 2**63 - 1


class EventGraph:
    """Made by ``build_graph`` or ``open_graph``."""

    def __init__(self, core: _core.EventGraph) -> None:
        self._core = core

    def save(self, path: Path | str) -> None:
        """Writes it to a file that ``open_graph`` reads."""
        self._core.save(os.fspath(path))

    def summary(self) -> GraphInfoFields:
        """Numbers of vertices, of edges by kind, of threads; gaps where events were lost; marks."""
        fields: GraphInfoFields = json.loads(self._core.summary())
        return fields

    def span(self) -> tuple[int, int]:
        """Times of the first and the last event, ns (CLOCK_MONOTONIC)."""
        meta: MetaFields = json.loads(self._core.meta())
        return meta["first"], meta["last"]

    def query(
        self, tid: int | None = None, start: int = 0, end: int = _FOREVER, limit: int = 1000
    ) -> list[VertexFields]:
        """Vertices that overlap the time from ``start`` to ``end`` (ns), of one thread or all, with
        their causes.
        """
        vertices: list[VertexFields] = json.loads(self._core.query(tid or 0, start, end, limit))
        return vertices

    def export_perfetto(self, path: Path | str) -> None:
        """Writes a trace for ui.perfetto.dev: tracks of threads, their runs and waits, arrows for
        wakes and flags.
        """
        self._core.export_perfetto(os.fspath(path))

    def tables(self) -> GraphTables:
        need_numpy()
        # numpy takes longer to import than most commands to run.
        from flagfinder.graph.tables import graph_tables  # noqa: PLC0415

        return graph_tables(self._core)

    def timeline_json(self, threads: Sequence[int], start: int, end: int) -> TimelineFields:
        """What a page draws of these threads from ``start`` to ``end`` (ns, CLOCK_MONOTONIC), no
        more than a screen can show.
        """
        request = {"threads": list(threads), "from": start, "to": end}
        fields: TimelineFields = json.loads(self._core.timeline(json.dumps(request)))
        return fields

    def critical_path_json(
        self, thread: int, start: int | None, end: int | None, most: int | None = None
    ) -> CriticalPathFields | None:
        """The engine's critical path; use ``flagfinder.critical_path`` for the typed one."""
        found = self._core.critical_path(
            json.dumps({"thread": thread, "from": start, "to": end, "most": most})
        )
        fields: CriticalPathFields | None = json.loads(found) if found is not None else None
        return fields

    def diagnose_json(
        self,
        thread: int | None,
        at: int | None,
        preceding: int,
        answers: Sequence[int] | None,
    ) -> OutcomeFields | None:
        """The engine's diagnosis, or its next question; use ``flagfinder.diagnose`` for the typed
        one.
        """
        request = {"thread": thread, "at": at, "preceding": preceding, "answers": answers}
        found = self._core.diagnose(json.dumps(request))
        fields: OutcomeFields | None = json.loads(found) if found is not None else None
        return fields


def build_graph(events: Path | str, flags: Sequence[Path | str] = ()) -> EventGraph:
    """Builds the graph of a recording. ``flags``: files of ``flagfinder watch -o``.

    Time and memory are linear in the events. Raises BadTraceError for a file that is no recording,
    and for one of ``flags`` that holds no records of flags.
    """
    watched = [_flag_records(Path(path)) for path in flags]
    return EventGraph(_core.EventGraph.build(EventFile(events).core, watched))


def _flag_records(path: Path) -> str:
    """The text of a file of ``flagfinder watch``; one that saw no event is a file of it too."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if not any(_is_flag_record(line) for line in text.splitlines()):
        raise BadTraceError(
            f"{path} holds no records of flags",
            f"no line of it is one: it begins with {text[:40]!r}",
            "Name a file that `flagfinder watch -o` or `flagfinder watch --json-lines` wrote.",
            "Without --flags the graph needs no such file.",
        )
    return text


def _is_flag_record(line: str) -> bool:
    """Whether a line is the header of a watch, or one of its events."""
    try:
        record = json.loads(line)
    except ValueError:
        return False
    return isinstance(record, dict) and (
        "event" in record or ("watches" in record and "events" not in record)
    )


def open_graph(path: Path | str) -> EventGraph:
    """Reads a saved graph. Raises BadTraceError for a file that is no graph, is damaged or of
    another version.
    """
    return EventGraph(_core.EventGraph.open(os.fspath(path)))
