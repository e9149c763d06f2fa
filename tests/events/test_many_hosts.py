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
from harness import live_or_skip

from flagfinder.hosts.questions import Hosts
from flagfinder.hosts.rows import write
from flagfinder.shared.errors import UsageError

MS = 1_000_000
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


def thread(tid: int, name: str, start: int, end: int) -> dict[str, Any]:
    return {"tid": tid, "thread": name, "start": start, "end": end}


def written(folder: Path, host: str, **tables: list[dict[str, Any]]) -> None:
    for name, rows in tables.items():
        write(columns(rows), folder / name, host, 3_599_000 * MS, "one")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A client of `shop` waits 100 ms for a thread of `bank`, whose clock is ahead, and which is
    recorded for the last 90 ms of these. That one waits 60 ms for another, which runs 20 ms and
    then reads from a disk. Each process has the same ids on both.
    """
    remote = {"ended_by": "interrupt", "flow": "a>b"}
    late = AHEAD + 100 * MS
    by = {"ended_by": "wake", "by_tid": 2, "by_thread": "worker"}
    sent = {"tid": 1, "thread": "server", "flow": "a>b", "position": 5, "ts": late}
    written(
        tmp_path,
        "shop",
        waits=[
            wait(1, "client", "recvfrom", 0, 100 * MS, **remote, position=5),
            wait(1, "client", "nanosleep", 110 * MS, 150 * MS),
            wait(1, "client", "recvfrom", 200 * MS, 230 * MS, **remote, position=9),
        ],
        threads=[thread(1, "client", 0, 300 * MS)],
    )
    written(
        tmp_path,
        "bank",
        waits=[
            wait(1, "server", "futex", late - 80 * MS, late - 20 * MS, **by),
            wait(2, "worker", "read", late - 60 * MS, late - 20 * MS, ended_by="interrupt"),
        ],
        # The last two have a sequence number that came twice.
        sends=[sent, *({**sent, "position": 9, "ts": late + n} for n in range(2))],
        threads=[
            thread(tid, name, late - 90 * MS, late + 200 * MS)
            for tid, name in ((1, "server"), (2, "worker"))
        ],
    )
    return tmp_path


def test_a_path_goes_over_to_the_sender_and_on_to_whom_it_waits_for(folder: Path) -> None:
    found = Hosts(folder).path("shop", 1, 0, 150 * MS)
    shares = [
        (row["host"], row["thread"], row["what"], row["total"] // MS) for row in found["rows"]
    ]
    assert shares == [
        ("bank", "worker", "read, interrupt", 40),
        ("shop", "client", "nanosleep, timer", 40),
        ("bank", "server", "runs", 30),
        ("bank", "worker", "runs", 20),
        ("bank", "server", "unknown", 10),
        ("shop", "client", "runs", 10),
    ]
    assert found["whole"] == 150 * MS == sum(row["total"] for row in found["rows"])


def test_who_waits_for_whom_and_what_is_not_sure_for_nobody(folder: Path) -> None:
    hosts = Hosts(folder)
    waits = [(r["thread"], r["by_host"], r["by_thread"], r["total"] // MS) for r in hosts.waits()]
    assert waits == [("client", "bank", "server", 100), ("server", "bank", "worker", 60)]
    top = [(row["thread"], row["call"], row["count"], row["total"] // MS) for row in hosts.top(2)]
    assert top == [("client", "recvfrom", 2, 130), ("server", "futex", 1, 60)]
    shares = hosts.bottleneck()["rows"]
    # The client's wait and the server's own, which is a part of it.
    assert [(r["thread"], r["what"], r["total"] // MS) for r in shares] == [
        ("worker", "read, interrupt", 80),
        ("worker", "runs", 40),
        ("server", "runs", 30),
        ("server", "unknown", 10),
    ]


@pytest.fixture
def small_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark that compiles little, so that it takes seconds for few rows, not a minute."""
    if importlib.util.find_spec("pyspark") is None:
        live_or_skip("pyspark is not installed")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    settings = ("spark.sql.codegen.wholeStage=false", "spark.sql.adaptive.enabled=false")
    words = [word for setting in settings for word in ("--conf", setting)]
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", " ".join([*words, "pyspark-shell"]))


@pytest.mark.live
@pytest.mark.soak
@pytest.mark.usefixtures("small_spark")
def test_both_engines_give_the_same_rows(tmp_path: Path) -> None:
    random.seed(1)
    for host, other in (("a", "b"), ("b", "a")):
        waits, sends, threads = [], [], []
        for tid in range(2):
            now = random.randrange(50 * MS)
            name = f"t{tid}"
            for turn in range(300):
                start = now + random.randrange(5 * MS)
                now = start + random.randrange(40 * MS)
                by = random.randrange(-1, 2)
                more = {"ended_by": "wake", "by_tid": by, "by_thread": f"t{by}"} if by >= 0 else {}
                if turn % 5 == 0:
                    position = tid * 1000 + turn
                    more = {"flow": f"{host}>x", "position": position}
                    from_here = {"flow": f"{other}>x", "position": position, "ts": now}
                    sends.append({"tid": 1 - tid, "thread": f"t{1 - tid}"} | from_here)
                waits.append(wait(tid, name, random.choice(("read", "")), start, now, **more))
            threads.append(thread(tid, name, 3000 * MS * tid, 6000 * MS))
        written(tmp_path, host, waits=waits, sends=sends, threads=threads)
    duck, spark = (Hosts(tmp_path, engine) for engine in ("duckdb", "spark-local"))
    assert duck.top(1000) == spark.top(1000) != []
    assert duck.waits(1000) == spark.waits(1000) != []
    path = duck.path("a", 1, limit=1000)
    assert path == spark.path("a", 1, limit=1000)
    assert {"runs", "unknown"} < {row["what"] for row in path["rows"]}


def test_a_folder_without_tables_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no recordings of hosts"):
        Hosts(tmp_path)
