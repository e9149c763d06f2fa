# SPDX-License-Identifier: MIT
"""The engine that answers: DuckDB in this process, or Spark."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from flagfinder.shared.errors import UsageError
from flagfinder.shared.extra import need

DUCKDB, SPARK_LOCAL, SPARK = "duckdb", "spark-local", "spark://"
_WHAT, _OTHERWISE = "Tables of many hosts can't be asked", "`graph build` and `diagnose` need none."


def connect(engine: str = DUCKDB) -> Any:
    """An Ibis backend: ``duckdb``, ``spark-local`` (Spark in this process), or ``spark://HOST:PORT``.

    Raises UsageError for another name, UnavailableError where the engine is not installed.
    """
    ibis = need("ibis", "hosts", _WHAT, _OTHERWISE)
    if engine == DUCKDB:
        need("duckdb", "hosts", _WHAT, _OTHERWISE)
        return ibis.duckdb.connect()
    if engine != SPARK_LOCAL and not engine.startswith(SPARK):
        raise UsageError(
            "There is no such engine",
            engine,
            f"Write --engine {DUCKDB}, {SPARK_LOCAL}, or {SPARK}HOST:PORT.",
        )
    sql = need("pyspark.sql", "spark", _WHAT, f"--engine {DUCKDB} needs no Spark.")
    builder = sql.SparkSession.builder.appName("flagfinder")
    builder = builder.master("local[*]" if engine == SPARK_LOCAL else engine)
    settings = {
        "spark.sql.session.timeZone": "UTC",
        # A host's name stays text, also where it looks like a number.
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
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
        found = backend.read_parquet(
            f"{path}/**/*.parquet", table_name=name, hive_partitioning=True
        )
    else:
        found = backend.read_parquet(str(path), table_name=name)
    return found.mutate(host=found.host.cast("string"), hour=found.hour.cast("int64"))
