# SPDX-License-Identifier: MIT
"""The rows of the tables, from a graph's columns, and how they are written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict
from urllib.parse import quote

import numpy as np
import pyarrow as arrow
from pyarrow import parquet

from flagfinder import _core
from flagfinder.graph.tables import VERTEX, call_names
from flagfinder.shared.errors import UsageError

if TYPE_CHECKING:
    from flagfinder.graph.fields import MetaFields

Columns = dict[str, np.ndarray]
# The layout of Exchanged in graph/graph/src/hosts/table.rs.
_EXCHANGED = np.dtype(
    [("ts", "<u8"), ("position", "<u8")]
    + [(name, "<u4") for name in ("bytes", "flow", "thread", "vertex", "sent", "reserved")]
)
_NOBODY = 2**32 - 1
_NO_FLOW = 2**32
_WEAK = "weak"
_HOUR = 3_600_000_000_000


class Flow(TypedDict):
    """A flow as the engine tells it."""

    number: int
    protocol: str
    local: str
    remote: str


def _keys(rows: np.ndarray, flows: Sequence[Flow]) -> tuple[np.ndarray, np.ndarray]:
    """What is the same at both ends: for TCP both addresses, sender first, and the sequence number;
    for UDP the receiver's port and a hash. A hash of 0 is none.
    """
    known = {flow["number"]: flow for flow in flows}
    numbers = np.array([*sorted(known), _NO_FLOW], dtype=np.uint64)
    outward = np.full(len(numbers), "", dtype=object)
    inward = np.full(len(numbers), "", dtype=object)
    is_tcp = np.zeros(len(numbers), dtype=bool)
    for place, (_, flow) in enumerate(sorted(known.items())):
        local, remote = flow["local"], flow["remote"]
        if flow["protocol"] == "tcp":
            outward[place], inward[place] = f"{local}>{remote}", f"{remote}>{local}"
            is_tcp[place] = True
        else:
            outward[place] = f"udp>{remote.rpartition(':')[2]}"
            inward[place] = f"udp>{local.rpartition(':')[2]}"
    # A number may be as large as the file says: it is looked up, and no index.
    of = np.searchsorted(numbers, rows["flow"])
    of = np.where(numbers[of] == rows["flow"], of, -1)
    names = np.where(rows["sent"] == 1, outward[of], inward[of])
    has = is_tcp[of] | (rows["position"] != 0)
    return np.where(has, names, ""), rows["position"].astype(np.int64)


def waits_of(
    core: _core.EventGraph, meta: MetaFields, exchanges: bytes, flows: Sequence[Flow]
) -> Columns:
    """Each wait, in order of its thread and time."""
    raw = np.frombuffer(core.records()[0], VERTEX)
    threads = meta["threads"]
    order = np.lexsort((np.arange(len(raw)), raw["thread"]))
    of = raw["thread"][order]
    is_last = np.append(of[1:] != of[:-1], True) if len(of) else np.zeros(0, dtype=bool)
    following = np.where(is_last, -1, np.append(order[1:], -1) if len(order) else order)
    blocks = raw["blocks"][order] == 1
    own, following = order[blocks], following[blocks]
    is_ended = following >= 0
    after = np.where(is_ended, following, 0)
    start = raw["end"][own].astype(np.int64)
    last = np.full(len(own), meta["last"], dtype=np.int64)
    end = np.where(is_ended, raw["start"][after].astype(np.int64), last) if len(raw) else last
    kinds = np.array(_core.edge_kinds(), dtype=object)
    cause = raw["cause"][after]
    strong = np.isin(kinds[cause], ("wake", "ipc", "signal", "fork", "exit", "flag"))
    source = raw["from"][after]
    by_thread = is_ended & strong & (source != _NOBODY)
    who = np.where(by_thread, raw["thread"][np.where(by_thread, source, 0)], 0)
    tid = np.array([thread["tid"] for thread in threads], dtype=np.int64)
    pid = np.array([thread["pid"] for thread in threads], dtype=np.int64)
    name = np.array([thread["name"] for thread in threads], dtype=object)
    thread = raw["thread"][own]
    ended = kinds[cause]
    ended = np.where(ended == _WEAK, "unknown", ended)
    rows = np.frombuffer(exchanges, _EXCHANGED)
    received = rows[(rows["sent"] == 0) & (rows["vertex"] != _NOBODY)]
    flow, position = _keys(received, flows)
    place = np.full(len(raw), -1, dtype=np.int64)
    place[received["vertex"]] = np.arange(len(received))
    came = np.where(is_ended, place[after], -1) if len(raw) else np.zeros(0, dtype=np.int64)
    has = came >= 0
    some = np.where(has, came, 0)
    return {
        "pid": pid[thread],
        "tid": tid[thread],
        "thread": name[thread],
        "call": call_names(raw[own]),
        "start": start,
        "end": np.maximum(start, end),
        "ended_by": np.where(is_ended, ended, "nothing"),
        "by_tid": np.where(by_thread, tid[who], -1),
        "by_thread": np.where(by_thread, name[who], ""),
        "flow": np.where(has, flow[some], "") if len(received) else np.full(len(own), ""),
        "position": np.where(has, position[some], 0)
        if len(received)
        else np.zeros(len(own), dtype=np.int64),
    }


def threads_of(core: _core.EventGraph, meta: MetaFields) -> Columns:
    """From when to when it is known of each thread what it did."""
    raw = np.frombuffer(core.records()[0], VERTEX)
    first = np.full(len(meta["threads"]), meta["last"], dtype=np.int64)
    np.minimum.at(first, raw["thread"], raw["start"].astype(np.int64))
    starts: dict[int, int] = {}
    for thread, start in zip(meta["threads"], first.tolist(), strict=True):
        if thread["followed"]:
            starts[thread["tid"]] = min(start, starts.get(thread["tid"], start))
    return {
        "tid": np.array([*starts], dtype=np.int64),
        "start": np.array([*starts.values()], dtype=np.int64),
        "end": np.full(len(starts), meta["last"], dtype=np.int64),
    }


def sends_of(meta: MetaFields, exchanges: bytes, flows: Sequence[Flow]) -> Columns:
    """What was sent and can be looked up, in order of time."""
    rows = np.frombuffer(exchanges, _EXCHANGED)
    rows = rows[rows["sent"] == 1]
    flow, position = _keys(rows, flows)
    is_known = flow != ""
    rows, flow, position = rows[is_known], flow[is_known], position[is_known]
    threads = meta["threads"]
    tid = np.array([thread["tid"] for thread in threads], dtype=np.int64)
    name = np.array([thread["name"] for thread in threads], dtype=object)
    return {
        "tid": tid[rows["thread"]],
        "thread": name[rows["thread"]],
        "flow": flow,
        "position": position,
        "ts": rows["ts"].astype(np.int64),
    }


def write(columns: Columns, folder: Path, host: str, begin: int, name: str) -> None:
    """Writes the rows as files of this name below ``host=../hour=..``; ``begin``: the time of day
    (ns since 1970) of time 0.
    """
    when = columns["start"] if "start" in columns else columns["ts"]
    hours = (when + begin) // _HOUR
    order = np.argsort(hours, kind="stable")
    text = {"thread", "call", "ended_by", "by_thread", "flow"}
    table = arrow.table(
        {
            column: arrow.array(values[order], arrow.string() if column in text else arrow.int64())
            for column, values in columns.items()
        }
    )
    found = np.unique(hours[order], return_index=True, return_counts=True)
    parts = [*zip(*(column.tolist() for column in found), strict=True)]
    # Without rows, too: engines want a file, and it may be the folder's only one.
    for hour, first, count in parts or [(0, 0, 0)]:
        part = folder / f"host={quote(host, safe='')}" / f"hour={hour}"
        if not part.resolve().is_relative_to(folder.parent.resolve()):
            raise UsageError(
                f"{part} is not written to",
                f"it leads to {part.resolve()}, outside of {folder.parent}",
                "Give a folder without such links.",
            )
        part.mkdir(parents=True, exist_ok=True)
        file = part / f"{name}-0.parquet"
        # A link that stands there is not followed.
        file.unlink(missing_ok=True)
        with file.open("xb") as out:
            parquet.write_table(table.slice(first, count), out)
