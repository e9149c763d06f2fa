# SPDX-License-Identifier: MIT
"""Recordings of hosts as Parquet tables, partitioned by host and hour.

Files are taken one by one, so memory is that of the largest one's graph; those of different hosts
can be taken in by different machines. Two tables come of it. ``waits``: each wait of each thread,
what ended it, and what then came from another host (``flow`` and ``position``; "" and 0: nothing).
``sends``: what was sent, by the same. Times (ns) are the host's own CLOCK_MONOTONIC, hours are of
the time of day (UTC).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flagfinder import _core
from flagfinder.graph.events import EventFile
from flagfinder.shared.errors import UsageError
from flagfinder.shared.extra import need

if TYPE_CHECKING:
    from flagfinder.graph.fields import MetaFields
    from flagfinder.hosts.fields import IngestedFields

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
    from flagfinder.hosts.rows import sends_of, waits_of, write  # noqa: PLC0415

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
    name = f"{info['boot_id'] or path.stem}-{info['started']}"
    parts = {
        "waits": waits_of(core, meta, exchanges, json.loads(flows)),
        "sends": sends_of(meta, exchanges, json.loads(flows)),
    }
    for table, rows in parts.items():
        write(rows, folder / table, host, begin, name)
    return {
        "file": str(path),
        "host": host,
        "waits": len(parts["waits"]["start"]),
        "sends": len(parts["sends"]["ts"]),
    }
