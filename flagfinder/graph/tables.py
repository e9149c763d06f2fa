# SPDX-License-Identifier: MIT
"""The event graph as columns, for bulk work."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from flagfinder import _core
from flagfinder.shared.record import dataclass

if TYPE_CHECKING:
    from flagfinder.graph.fields import MetaFields

# The layout of Vertex and Details in graph/graph/src/vertex.rs, of Edge in edge.rs there.
VERTEX = np.dtype(
    [(name, "<u8") for name in ("start", "end", "run", "call")]
    + [(name, "<u4") for name in ("thread", "from", "details")]
    + [("cpu", "<u2"), ("cause", "u1"), ("blocks", "u1")]
)
_DETAILS = np.dtype(
    [("result", "<i8"), ("semantics", "<u8")]
    + [
        (name, "<u4")
        for name in ("yields", "flags", "stack", "waker_stack", "priority", "waker_priority")
    ]
)
_EDGE = np.dtype([("from", "<u4"), ("to", "<u4"), ("ts", "<u8"), ("kind", "<u4"), ("stack", "<u4")])
_NOBODY = 2**32 - 1
_NO_RESULT = -(2**63)


Table = dict[str, np.ndarray]


@dataclass(frozen=True)
class GraphTables:
    """The graph as columns, for bulk work.

    ``vertices``: vertex, tid, pid, thread, start, end, run (ns on a CPU), call (that it blocks in
    at the end, or ""), result ("" where not recorded), yields, flags, cpu (the last), stack (call
    sites by line, innermost first). ``edges``: from (a vertex; -1: no thread is the cause), to,
    kind, ts, stack (of the waker). ``threads``: tid, pid, name, kernel, priority.
    """

    vertices: Table
    edges: Table
    threads: Table

    def named(self) -> list[tuple[str, Table]]:
        """All three with their names."""
        return [("vertices", self.vertices), ("edges", self.edges), ("threads", self.threads)]


def graph_tables(core: _core.EventGraph) -> GraphTables:
    meta: MetaFields = json.loads(core.meta())
    raw_vertices, raw_details, raw_edges = core.records()
    vertices, edges = np.frombuffer(raw_vertices, VERTEX), np.frombuffer(raw_edges, _EDGE)
    details = np.frombuffer(raw_details, _DETAILS)[vertices["details"]]
    threads = {
        name: _column(meta["threads"], name)
        for name in ("tid", "pid", "name", "kernel", "priority")
    }
    sites = meta["sites"]
    stacks = np.array(
        ["\n".join(sites[site] for site in stack) for stack in meta["stacks"]] or [""], dtype=object
    )
    of = vertices["thread"]
    results = np.where(details["result"] == _NO_RESULT, "", details["result"].astype(str))
    kinds = np.array(_core.edge_kinds(), dtype=object)
    causes = edges["from"].astype(np.int64)
    return GraphTables(
        {
            "vertex": np.arange(len(vertices), dtype=np.int64),
            "tid": threads["tid"][of],
            "pid": threads["pid"][of],
            "thread": threads["name"][of],
            **{name: vertices[name] for name in ("start", "end", "run")},
            "call": call_names(vertices),
            "result": results.astype(object),
            "yields": details["yields"],
            "flags": details["flags"],
            "cpu": vertices["cpu"],
            "stack": stacks[details["stack"]],
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


def call_names(vertices: np.ndarray) -> np.ndarray:
    """The calls that vertices end in; "" for none."""
    calls, which = np.unique(vertices["call"] >> 48, return_inverse=True)
    names = [_core.call_name(int(call) - 1) if call else "" for call in calls]
    found: np.ndarray = np.array(names, dtype=object)[which]
    return found


def _column(rows: Sequence[Mapping[str, object]], name: str) -> np.ndarray:
    """One field of all rows; text as Python strings, which keeps columns small where one name is
    long.
    """
    values = [row[name] for row in rows]
    return np.array(values, dtype=object if name == "name" else None)
