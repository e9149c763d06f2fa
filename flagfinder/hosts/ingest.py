# SPDX-License-Identifier: MIT
"""Recordings of hosts as Parquet tables, partitioned by host and hour.

Files are taken one by one, so memory is that of the largest one's graph; those of different hosts
can be taken in by different machines. Three tables come of it. ``waits``: each wait of each thread,
what ended it, and what then came from another host (``flow`` and ``position``; "" and 0: nothing).
``sends``: what was sent, by the same. ``threads``: from when to when a thread was recorded. Times
(ns) are the host's own CLOCK_MONOTONIC, hours are of the time of day (UTC).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from flagfinder import _core
from flagfinder.graph.events import EventFile
from flagfinder.shared.errors import BadTraceError, UsageError
from flagfinder.shared.extra import need

if TYPE_CHECKING:
    from flagfinder.graph.fields import MetaFields
    from flagfinder.hosts.fields import IngestedFields

# Of what becomes part of a file's name; and the first time that is none, ns.
_LONGEST = 200
_LATEST = 1 << 62
_OTHERWISE = "`flagfinder graph build A B` joins a few hosts without it."


def ingest(
    files: Sequence[Path | str], folder: Path | str, host: str | None = None
) -> list[IngestedFields]:
    """Adds recordings to the folder, which is made. A recording that is taken in again replaces
    itself. ``host`` is for files that do not know theirs.

    Raises BadTraceError for a file that is no recording, UsageError for one that does not know its
    host, UnavailableError without numpy and pyarrow.
    """
    return [_ingest(Path(file), Path(folder), host) for file in files]


def _ingest(path: Path, folder: Path, host: str | None) -> IngestedFields:
    for module in ("numpy", "pyarrow"):
        need(module, "hosts", "Recordings can't be made tables of", _OTHERWISE)
    # Both take longer to import than most commands to run.
    from flagfinder.hosts.rows import sends_of, threads_of, waits_of, write  # noqa: PLC0415

    file = EventFile(path)
    info: dict[str, Any] = json.loads(file.core.info())
    host = info["host"] or host
    if not host:
        raise UsageError(
            f"{path} does not say of which host it is",
            "it was recorded by an older flagfinder, or imported",
            "Add --host NAME, or record it again.",
        )
    core, exchanges, flows = _core.EventGraph.build_with_table(file.core)
    meta: MetaFields = json.loads(core.meta())
    # What monotonic time 0 was in time of day.
    begin = info["started_unix_ns"] - info["started"]
    name = f"{quote(info['boot_id'] or path.stem, safe='')}-{info['started']}"
    _refuse_nonsense(path, (quote(host, safe=""), name), (abs(begin), meta["last"]))
    parts = {
        "waits": waits_of(core, meta, exchanges, json.loads(flows)),
        "sends": sends_of(meta, exchanges, json.loads(flows)),
        "threads": threads_of(core, meta),
    }
    shown = (rows.get(name) for rows in parts.values() for name in ("start", "end", "ts"))
    both = ((times.min(), times.max()) for times in shown if times is not None and len(times))
    _refuse_nonsense(path, (), [int(time) for ends in both for time in ends])
    for table, rows in parts.items():
        write(rows, folder / table, host, begin, name)
    return {
        "file": str(path),
        "host": host,
        "waits": len(parts["waits"]["start"]),
        "sends": len(parts["sends"]["ts"]),
    }


def _refuse_nonsense(path: Path, names: Sequence[str], times: Sequence[int]) -> None:
    """Raises BadTraceError for a damaged file: names of files have no such length, and no clock
    shows such times.
    """
    found = None
    if any(len(name) > _LONGEST for name in names):
        found = f"the name of its host or of its boot has more than {_LONGEST} letters"
    elif not all(0 <= time < _LATEST for time in times):
        found = "its times are none that a clock shows"
    if found is not None:
        raise BadTraceError(f"{path} can't be taken in", found, "Record it again.", _OTHERWISE)
