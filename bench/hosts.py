# SPDX-License-Identifier: MIT
"""Questions about many hosts: how long DuckDB and Spark take, whether both give the same rows, and
how often the culprit on another host is named: hosts.py [--help]. Needs root.

A redis server and its benchmark are recorded on two hosts, which are network namespaces. The rows
of their tables are multiplied, each copy under other hosts' names and with flows of its own. Each
question runs in a process of its own. Then a client waits for a server one of whose threads is late
(tests/events/test_hosts.py).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as arrow
from measure import machine
from pyarrow import compute, dataset

TESTS = Path(__file__).resolve().parent.parent / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "events")]
from harness import command_into, flagfinder, run, started  # noqa: E402
from other_host import ADDRESSES, two_hosts  # noqa: E402
from test_hosts import COMPUTES, SLEEPS, culprit, joined, record  # noqa: E402

QUESTIONS = (("top",), ("waits",), ("bottleneck", "--least", "100ms"))
PORT = "6390"


def recorded(folder: Path, requests: int) -> Path:
    """Tables of both hosts of a redis under load."""
    files = [folder / "server.events", folder / "client.events"]
    with two_hosts() as hosts:
        server, client = (
            [*host, *command_into(file, "events record", "--network", "--host", file.stem), "--"]
            for host, file in zip(hosts, files, strict=True)
        )
        server += ["redis-server", "--port", PORT, "--bind", ADDRESSES[0], "--save", ""]
        server += ["--protected-mode", "no", "--loglevel", "warning"]
        asks = ["redis-benchmark", "-h", ADDRESSES[0], "-p", PORT]
        ends = ["redis-cli", "-h", ADDRESSES[0], "-p", PORT, "shutdown"]
        with started(server, cwd=folder) as serving:
            time.sleep(3)
            ran = run([*client, *asks, "-n", requests, "-c", 1, "-t", "get,lpush"], timeout=600)
            assert ran.returncode == 0, ran.stderr
            run([*hosts[1], *ends], timeout=60)
            assert serving.wait(timeout=60) == 0
    tables = folder / "tables"
    made = flagfinder("hosts", "ingest", *files, "-o", tables, timeout=600)
    assert made.returncode == 0, made.stderr
    return tables


def multiplied(source: Path, target: Path, rows: int) -> None:
    """Writes so many waits at least, with what belongs to them."""
    tables = {
        name: dataset.dataset(source / name, partitioning="hive").to_table()
        for name in ("waits", "sends", "threads")
    }
    copies = -(-rows // len(tables["waits"]))
    for copy in range(copies):
        mark = arrow.scalar(f"-{copy}")
        for name, rows_of in tables.items():
            changed = rows_of
            for column in {"host", "flow"} & set(rows_of.column_names):
                text = rows_of[column].cast("string")
                longer = compute.binary_join_element_wise(text, mark, "")
                given = compute.if_else(compute.not_equal(text, ""), longer, text)
                place = changed.column_names.index(column)
                changed = changed.set_column(place, column, given)
            dataset.write_dataset(
                changed,
                target / name,
                format="parquet",
                partitioning=["host", "hour"],
                partitioning_flavor="hive",
                basename_template=f"{copy}-{{i}}.parquet",
                existing_data_behavior="overwrite_or_ignore",
            )


def asked(folder: Path, question: tuple[str, ...], engine: str) -> tuple[object, float, float]:
    """The answer, seconds, and peak MiB of the largest process."""
    words = ["hosts", question[0], folder, *question[1:], "--limit", "100000"]
    before = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, __file__, "--ask", *map(str, words), "--engine", engine, "--json"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    answer, peak = process.stdout.read().rsplit("\n", 1)
    assert process.wait() == 0
    return json.loads(answer), time.monotonic() - before, int(peak) / 1024


def ask(words: list[str]) -> None:
    """Answers a question, and prints the greatest peak KiB of this process and those it started."""
    from flagfinder.cli.command import main as command  # noqa: PLC0415

    status = command(words)
    sys.stdout.flush()
    peaks = []
    for told in Path("/proc").glob("[0-9]*/status"):
        fields = dict(line.split(":", 1) for line in told.read_text().splitlines())
        if os.getpid() in (int(fields["Pid"]), int(fields["PPid"])):
            peaks.append(int(fields["VmHWM"].split()[0]))
    os.write(1, str(max(peaks)).encode())
    os._exit(status)


def hangs(folder: Path, turns: int) -> int:
    """How often the thread that was late is named, and no thread of the client's host."""
    right = 0
    for turn in range(turns):
        place = folder / f"hang-{turn}"
        place.mkdir()
        ran = record(place, (SLEEPS, COMPUTES)[turn % 2], ("tcp", "udp")[turn // 2 % 2])
        right += culprit(joined(ran)[0]) == (ran.roles["holder"], "bank")
    return right


def main() -> None:
    if sys.argv[1:2] == ["--ask"]:
        ask(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, default=1e7)
    parser.add_argument("--requests", type=int, default=50_000)
    parser.add_argument("--hangs", type=int, default=10)
    parser.add_argument("--tables", type=Path, help="where the rows are, or are to stay")
    parser.add_argument("--engines", default="duckdb,spark-local")
    parser.add_argument("--questions", default="top,waits,bottleneck")
    options = parser.parse_args()
    print(f"{machine()}\n")
    with tempfile.TemporaryDirectory(prefix="ff-hosts-") as scratch:
        folder = Path(scratch)
        if options.hangs:
            right = hangs(folder, options.hangs)
            print(f"culprits on the other host: {right} of {options.hangs}", flush=True)
        many = options.tables or folder / "many"
        if not many.exists():
            multiplied(recorded(folder, options.requests), many, int(options.rows))
        print(f"{dataset.dataset(many / 'waits').count_rows():,} waits", flush=True)
        for question in (one for one in QUESTIONS if one[0] in options.questions.split(",")):
            answers = []
            for engine in options.engines.split(","):
                answer, seconds, peak = asked(many, question, engine)
                answers.append(answer)
                told = f"{seconds:.1f} s, {peak:.0f} MiB"
                print(f"{question[0]:<12} {engine:<12} {told}", flush=True)
            same = all(answer == answers[0] for answer in answers)
            print(f"{question[0]:<12} {'the same' if same else 'OTHER'} rows", flush=True)


if __name__ == "__main__":
    main()
