# SPDX-License-Identifier: MIT
"""The event graph: what threads did from wake to wait, and what made each of these stretches begin.

In: a recording of ``flagfinder events record``, and what ``flagfinder watch`` wrote meanwhile.
``docs/graph.md`` describes vertices, edges and the rules by which wakes become edges.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from flagfinder import _core
from flagfinder.graph.events import EventFile
from flagfinder.shared.errors import BadTraceError
from flagfinder.shared.extra import need_numpy

if TYPE_CHECKING:
    from flagfinder.graph.diagnosis_fields import HangFields, OutcomeFields
    from flagfinder.graph.fields import GraphInfoFields, MetaFields, SortKey, VertexFields
    from flagfinder.graph.path_fields import BottleneckFields, CriticalPathFields
    from flagfinder.graph.tables import GraphTables
    from flagfinder.graph.timeline_fields import TimelineFields

SORT_KEYS: tuple[SortKey, ...] = ("start", "dur", "run", "wait", "woke")
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
        self,
        tid: int | None = None,
        start: int = 0,
        end: int = _FOREVER,
        limit: int = 1000,
        name: str | None = None,
        sort: SortKey = "start",
    ) -> list[VertexFields]:
        """Vertices that overlap the time from ``start`` to ``end`` (ns), with their causes: of one
        thread, of those with such a ``name`` (``pool-*``), or of all. ``sort``: the earliest come
        first, or those that are longest (``dur``), were longest on a CPU (``run``), end in the
        longest ``wait``, or made most others begin (``woke``).
        """
        tids = None if tid is None else [tid]
        if name is not None:
            tids = [one for one in self._named(name) if tid in (None, one)]
        request = {"tids": tids, "start": start, "end": end, "limit": limit, "sort": sort}
        vertices: list[VertexFields] = json.loads(self._core.query(json.dumps(request)))
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
        self,
        thread: int,
        start: int | None,
        end: int | None,
        most: int | None = None,
        host: str | None = None,
    ) -> CriticalPathFields | None:
        """The engine's critical path; use ``flagfinder.critical_path`` for the typed one."""
        request = {"thread": thread, "host": host, "from": start, "to": end, "most": most}
        found = self._core.critical_path(json.dumps(request))
        fields: CriticalPathFields | None = json.loads(found) if found is not None else None
        return fields

    def bottleneck(
        self,
        start: int | None = None,
        end: int | None = None,
        name: str | None = None,
    ) -> BottleneckFields | None:
        """What workers wait for in the end from ``start`` to ``end`` (ns, CLOCK_MONOTONIC), and how
        much of their time goes by meanwhile. Workers are the threads with such a ``name``
        (``pool-*``), else the main threads. None when there are none, or they did nothing then.
        """
        tids = None if name is None else self._named(name)
        found = self._core.bottleneck(json.dumps({"tids": tids, "from": start, "to": end}))
        fields: BottleneckFields | None = json.loads(found) if found is not None else None
        return fields

    def _named(self, name: str) -> list[int]:
        meta: MetaFields = json.loads(self._core.meta())
        return [one["tid"] for one in meta["threads"] if fnmatchcase(one["name"], name)]

    def diagnose_json(
        self,
        thread: int | None,
        at: int | None,
        preceding: int,
        answers: Sequence[int] | None,
        host: str | None = None,
    ) -> OutcomeFields | None:
        """The engine's diagnosis, or its next question; use ``flagfinder.diagnose`` for the typed
        one.
        """
        request = {
            "thread": thread,
            "at": at,
            "preceding": preceding,
            "answers": answers,
            "host": host,
        }
        found = self._core.diagnose(json.dumps(request))
        fields: OutcomeFields | None = json.loads(found) if found is not None else None
        return fields

    def hangs_json(
        self, thread: int | None, at: int | None, host: str | None = None
    ) -> list[HangFields]:
        """The engine's list of stretches; use ``flagfinder.find_hangs`` for the typed one."""
        found = self._core.hangs(json.dumps({"thread": thread, "at": at, "host": host}))
        fields: list[HangFields] = json.loads(found)
        return fields


def build_graph(
    events: Path | str | Sequence[Path | str], flags: Sequence[Path | str] = ()
) -> EventGraph:
    """Builds the graph of a recording, or of those of several hosts (``--network``); its times are
    those of the first. ``flags``: files of ``flagfinder watch -o``, of the first host.

    Time and memory are linear in the events. Raises BadTraceError for a file that is no recording,
    for one of ``flags`` that holds no records of flags, and where the clocks of hosts can't be
    compared; UsageError for hosts of one name.
    """
    watched = [_flag_records(Path(path)) for path in flags]
    paths = [events] if isinstance(events, (str, Path)) else events
    files = [EventFile(path).core for path in paths]
    return EventGraph(_core.EventGraph.build(files, watched))


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
    except (ValueError, RecursionError):
        return False
    return isinstance(record, dict) and (
        "event" in record or ("watches" in record and "events" not in record)
    )


def open_graph(path: Path | str) -> EventGraph:
    """Reads a saved graph, or builds that of a recording. Raises BadTraceError for a file that is
    neither, is damaged or of another version.
    """
    return EventGraph(_core.EventGraph.open(os.fspath(path)))
