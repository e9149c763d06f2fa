# SPDX-License-Identifier: MIT
"""The engine that answers: DuckDB in this process, or Spark."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flagfinder.shared.errors import BadTraceError, UsageError
from flagfinder.shared.extra import need

DUCKDB, SPARK_LOCAL, SPARK = "duckdb", "spark-local", "spark://"
# Whose failures tell of tables that are no such tables.
_READERS = {"duckdb", "_duckdb", "ibis", "pyspark", "py4j", "pyarrow"}
# By table, columns that are text, and those that are numbers.
_COLUMNS = {
    "waits": (
        ["thread", "call", "ended_by", "by_thread", "flow"],
        ["pid", "tid", "start", "end", "by_tid", "position", "hour"],
    ),
    "sends": (["thread", "flow"], ["tid", "position", "ts", "hour"]),
    "threads": ([], ["tid", "start", "end", "hour"]),
}
# Memory that DuckDB takes, MiB, beyond so much for each byte of the tables. What needs more goes
# to a file meanwhile.
_MEMORY, _PER_BYTE = 512, 16
_WHAT, _OTHERWISE = "Tables of many hosts can't be asked", "`graph build` and `diagnose` need none."


def connect(engine: str = DUCKDB) -> Any:
    """An Ibis backend: ``duckdb``, ``spark-local`` (in this process), or ``spark://HOST:PORT``.

    Raises UsageError for another name, UnavailableError where the engine is not installed.
    """
    ibis = need("ibis", "hosts", _WHAT, _OTHERWISE)
    if engine == DUCKDB:
        need("duckdb", "hosts", _WHAT, _OTHERWISE)
        meanwhile = Path(tempfile.gettempdir(), f"flagfinder-{uuid.uuid4().hex}")
        return ibis.duckdb.connect(temp_directory=meanwhile)
    if engine != SPARK_LOCAL and not engine.startswith(SPARK):
        raise UsageError(
            "There is no such engine",
            engine,
            f"Write --engine {DUCKDB}, {SPARK_LOCAL}, or {SPARK}HOST:PORT.",
        )
    sql = need("pyspark.sql", "spark", _WHAT, f"--engine {DUCKDB} needs no Spark.")
    builder = sql.SparkSession.builder.appName("flagfinder")
    settings = {
        "spark.sql.session.timeZone": "UTC",
        # A host's name stays text, also where it looks like a number.
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if engine == SPARK_LOCAL:
        # Its 200 parts are for clusters.
        parts = 4 * (os.cpu_count() or 1)
        settings |= {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": str(parts)}
    builder = builder.master("local[*]" if engine == SPARK_LOCAL else engine)
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return ibis.pyspark.connect(session)


def kept(backend: Any, rows: Any) -> Any:
    """The rows, worked out once, until the backend is gone."""
    if backend.name == DUCKDB:
        return backend.create_table(f"kept_{uuid.uuid4().hex}", rows, temp=True)
    return rows.cache()


def table(backend: Any, folder: Path, name: str) -> Any:
    """A table of the folder. Raises UsageError where it holds none."""
    path = folder / name
    if not path.is_dir():
        raise UsageError(
            f"{folder} holds no recordings of hosts",
            f"there is no {path}",
            f"Write `flagfinder hosts ingest FILES.. -o {folder}` first.",
        )
    if backend.name == DUCKDB:
        held = sum(file.stat().st_size for file in folder.rglob("*.parquet"))
        backend.raw_sql(f"SET memory_limit='{_MEMORY + (held * _PER_BYTE >> 20)}MiB'")
        found = backend.read_parquet(
            f"{path}/**/*.parquet", table_name=name, hive_partitioning=True
        )
    else:
        found = backend.read_parquet(str(path), table_name=name)
    text, numbers = _COLUMNS[name]
    missing = {"host", *text, *numbers} - {*found.columns}
    if missing:
        raise _no_tables(path, f"there is no column {min(missing)}")
    kinds = dict.fromkeys(["host", *text], "string") | dict.fromkeys(numbers, "int64")
    return found.select(**{column: found[column].cast(kind) for column, kind in kinds.items()})


@contextmanager
def readable(folder: Path) -> Iterator[None]:
    """Raises BadTraceError where an engine can't read the tables, or work with what they hold."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in _READERS:
            raise
        raise _no_tables(folder, str(error).partition("\n")[0]) from error


def _no_tables(path: Path, found: str) -> BadTraceError:
    return BadTraceError(
        f"{path} holds no tables of hosts that can be read",
        found,
        "Take the recordings in again, into another folder.",
        _OTHERWISE,
    )
