# SPDX-License-Identifier: MIT
"""Questions about many hosts: tables that are made up, so that the answers are known, and asked on
both engines.
"""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flagfinder.hosts.questions import Hosts
from flagfinder.hosts.rows import write
from flagfinder.shared.errors import UsageError

MS = 1_000_000
ENGINES = [
    "duckdb",
    pytest.param(
        "spark-local",
        marks=pytest.mark.skipif(
            importlib.util.find_spec("pyspark") is None, reason="pyspark is not installed"
        ),
    ),
]
_TEXT = {"thread", "call", "ended_by", "by_thread", "flow"}


def columns(rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    return {
        name: np.array([row[name] for row in rows], dtype=object if name in _TEXT else np.int64)
        for name in rows[0]
    }


def wait(tid: int, thread: str, call: str, start: int, end: int, **more: Any) -> dict[str, Any]:
    """A wait that nobody is known to have ended."""
    return {
        "pid": 1,
        "tid": tid,
        "thread": thread,
        "call": call,
        "start": start,
        "end": end,
        "ended_by": "timer",
        "by_tid": -1,
        "by_thread": "",
        "flow": "",
        "position": 0,
    } | more


AHEAD = 10**15


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A client of `shop` waits 100 ms for a thread of `bank`, whose clock is ahead. That one waits
    60 ms of these for another, which runs 20 ms and then reads from a disk. Each process has the
    same ids on both.
    """
    shop = [
        wait(1, "client", "recvfrom", 0, 100 * MS, ended_by="interrupt", flow="a>b", position=5),
        wait(1, "client", "nanosleep", 110 * MS, 150 * MS),
    ]
    late = AHEAD + 100 * MS
    bank = [
        wait(
            1, "server", "futex", late - 80 * MS, late - 20 * MS,
            ended_by="wake", by_tid=2, by_thread="worker",
        ),
        wait(2, "worker", "read", late - 60 * MS, late - 20 * MS, ended_by="interrupt"),
    ]  # fmt: skip
    sends = {"tid": 1, "thread": "server", "flow": "a>b", "position": 5, "ts": late}
    # A sequence number that came twice.
    again = [{**sends, "position": 9, "ts": late + n} for n in range(2)]
    shop.append(
        wait(
            1,
            "client",
            "recvfrom",
            200 * MS,
            230 * MS,
            ended_by="interrupt",
            flow="a>b",
            position=9,
        )
    )
    for name, host, rows in (
        ("waits", "shop", shop),
        ("waits", "bank", bank),
        ("sends", "bank", [sends, *again]),
    ):
        write(columns(rows), tmp_path / name, host, 0, "one")
    return tmp_path


@pytest.mark.parametrize("engine", ENGINES)
def test_a_path_goes_over_to_the_sender_and_on_to_whom_it_waits_for(
    folder: Path, engine: str
) -> None:
    found = Hosts(folder, engine).path("shop", 1, 0, 150 * MS)
    shares = [
        (row["host"], row["thread"], row["what"], row["total"] // MS) for row in found["rows"]
    ]
    assert shares == [
        ("bank", "server", "runs", 40),
        ("bank", "worker", "read, interrupt", 40),
        ("shop", "client", "nanosleep, timer", 40),
        ("bank", "worker", "runs", 20),
        ("shop", "client", "runs", 10),
    ]
    assert found["whole"] == 150 * MS == sum(row["total"] for row in found["rows"])


@pytest.mark.parametrize("engine", ENGINES)
def test_who_waits_for_whom_and_what_is_not_sure_for_nobody(folder: Path, engine: str) -> None:
    hosts = Hosts(folder, engine)
    waits = [(r["thread"], r["by_host"], r["by_thread"], r["total"] // MS) for r in hosts.waits()]
    assert waits == [("client", "bank", "server", 100), ("server", "bank", "worker", 60)]
    top = [(row["thread"], row["call"], row["count"], row["total"] // MS) for row in hosts.top(2)]
    assert top == [("client", "recvfrom", 2, 130), ("server", "futex", 1, 60)]
    shares = hosts.bottleneck()["rows"]
    # The client's wait and the server's own, which is a part of it.
    assert [(r["thread"], r["what"], r["total"] // MS) for r in shares] == [
        ("worker", "read, interrupt", 80),
        ("server", "runs", 40),
        ("worker", "runs", 40),
    ]


def test_both_engines_give_the_same_rows(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    random.seed(1)
    for host in ("a", "b"):
        rows, now = [], 0
        for turn in range(3000):
            tid = random.randrange(6)
            start = now = now + random.randrange(5 * MS)
            by = random.randrange(-1, 6)
            more = {"ended_by": "wake", "by_tid": by, "by_thread": f"t{by}"} if by >= 0 else {}
            if turn % 5 == 0:
                more = {"flow": f"{host}>x", "position": turn}
            end = start + random.randrange(400 * MS)
            rows.append(wait(tid, f"t{tid}", random.choice(("read", "")), start, end, **more))
        write(columns(rows), tmp_path / "waits", host, 3_599_000 * MS, "one")
        other = "a" if host == "b" else "b"
        sends = [
            {"tid": n % 6, "thread": f"t{n % 6}", "flow": f"{other}>x", "position": n, "ts": n * MS}
            for n in range(0, 3000, 5)
        ]
        write(columns(sends), tmp_path / "sends", host, 0, "one")
    duck, spark = (Hosts(tmp_path, engine) for engine in ("duckdb", "spark-local"))
    assert duck.top(1000) == spark.top(1000) != []
    assert duck.waits(1000) == spark.waits(1000) != []
    assert duck.path("a", 1, limit=1000) == spark.path("a", 1, limit=1000)
    assert duck.bottleneck(300 * MS, 1000) == spark.bottleneck(300 * MS, 1000)


def test_a_folder_without_tables_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no recordings of hosts"):
        Hosts(tmp_path)
