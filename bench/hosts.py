# SPDX-License-Identifier: MIT
"""How long questions about many hosts take, on DuckDB and on Spark: `python bench/hosts.py FOLDER
[ROWS]`, where FOLDER is what `flagfinder hosts ingest` made of real recordings.

The folder's rows are multiplied to ROWS waits (default 10^7), each copy of a host under another
name and with flows of its own. Each question runs in a process of its own; its peak memory counts
Spark's, too. The answers of both engines must be the same.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as arrow
from pyarrow import compute
from pyarrow import dataset

QUESTIONS = (("top",), ("waits",), ("bottleneck", "--least", "100ms"))
ENGINES = ("duckdb", "spark-local")


def multiplied(source: Path, target: Path, rows: int) -> int:
    """Writes so many waits at least, with the sends that belong to them; returns how many."""
    made = 0
    tables = {
        name: dataset.dataset(source / name, partitioning="hive").to_table()
        for name in ("waits", "sends")
    }
    copies = -(-rows // max(1, len(tables["waits"])))
    for copy in range(copies):
        for name, table in tables.items():
            mark = arrow.scalar(f"-{copy}")
            host = compute.binary_join_element_wise(table["host"].cast("string"), mark, "")
            flow = compute.binary_join_element_wise(table["flow"], mark, "")
            has = compute.not_equal(table["flow"], "")
            changed = table.set_column(table.column_names.index("host"), "host", host)
            place = changed.column_names.index("flow")
            changed = changed.set_column(place, "flow", compute.if_else(has, flow, table["flow"]))
            dataset.write_dataset(
                changed,
                target / name,
                format="parquet",
                partitioning=["host", "hour"],
                partitioning_flavor="hive",
                basename_template=f"{copy}-{{i}}.parquet",
                existing_data_behavior="overwrite_or_ignore",
            )
            made += len(changed) if name == "waits" else 0
    return made


def asked(folder: Path, question: tuple[str, ...], engine: str) -> tuple[str, float, float]:
    """The answer, seconds, and peak memory in MB of the largest process."""
    code = (
        "import resource, sys\nfrom flagfinder.cli import main\nstatus = main(sys.argv[1:])\n"
        "peak = max(resource.getrusage(who).ru_maxrss for who in "
        "(resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))\nprint(peak, file=sys.stderr)\n"
    )
    words = ["hosts", question[0], str(folder), *question[1:], "--engine", engine, "--json"]
    begin = time.monotonic()
    ran = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True
    )
    seconds = time.monotonic() - begin
    return ran.stdout, seconds, int(ran.stderr.split()[-1]) / 1024


def main() -> None:
    source = Path(sys.argv[1])
    rows = int(float(sys.argv[2])) if len(sys.argv) > 2 else 10_000_000
    folder = Path(tempfile.mkdtemp(prefix="ff-hosts-"))
    try:
        made = multiplied(source, folder, rows)
        print(f"{made:,} waits")
        for question in QUESTIONS:
            answers = []
            for engine in ENGINES:
                answer, seconds, peak = asked(folder, question, engine)
                answers.append(json.loads(answer))
                print(f"{question[0]:<11} {engine:<12} {seconds:7.2f} s {peak:8.0f} MB")
            print("  the same" if answers[0] == answers[1] else "  DIFFERENT")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
