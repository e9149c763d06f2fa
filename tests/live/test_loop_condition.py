# SPDX-License-Identifier: MIT
"""The answer of `spin` is what would end the loop: each of its tests, the owed one first."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import schemas
from harness import assert_found, compiled, flagfinder, run, started

pytestmark = pytest.mark.live
SOURCE = Path(__file__).parent / "programs" / "three_ways.c"
PYTHON = """
import threading, time
class Job: done = False
job, stop = Job(), threading.Event()
while not job.done and not stop.is_set():
    time.sleep(0.001)
"""


def condition(pid: int) -> dict[str, Any]:
    ran = flagfinder("spin", "--json", str(pid), timeout=90)
    assert_found(ran)
    report = json.loads(ran.stdout)
    schemas.validate(report)
    told: dict[str, Any] = report["threads"][0]["condition"]
    assert told["text"] == " or ".join(part["text"] for part in told["parts"])
    return told


@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_each_test_of_the_loop_is_a_part_and_the_owed_one_is_first(
    tmp_path: Path, level: str
) -> None:
    program = compiled(tmp_path / "three_ways", SOURCE, "-Wall", "-Werror", level)
    with started([program]) as process:
        time.sleep(0.3)
        parts = condition(process.pid)["parts"]
        assert process.poll() is None, "the program did not survive"
    first, *others = parts
    assert first["text"] == "shared->count >= shared->wanted (signed)"
    assert (first["operator"], first["value"]) == (">=", "0x0")
    assert len(first["owed"]) == 1
    assert {part["text"] for part in others} == {"shared->closed != 0x0", "shared->error != 0x0"}
    assert all(part["owed"] == [] for part in others)


def test_what_a_python_loop_asks_is_its_condition(tmp_path: Path) -> None:
    script = tmp_path / "asks.py"
    script.write_text(PYTHON)
    with started([sys.executable, script]) as process:
        time.sleep(0.5)
        parts = condition(process.pid)["parts"]
    assert [part["text"] for part in parts] == ["job.done or stop.is_set()"]


GO = """
package main

import (
\t"runtime"
\t"sync/atomic"
\t"time"
)

type pool struct {
\tpending atomic.Int32
\tclosed  atomic.Bool
\tlimit   int32
}

func (p *pool) waitForRoom() {
\tfor p.pending.Load() >= p.limit && !p.closed.Load() {
\t\truntime.Gosched()
\t}
}

func main() {
\tp := &pool{limit: 1}
\tp.pending.Add(1)
\tgo func() {
\t\ttime.Sleep(time.Hour)
\t\tp.pending.Add(-1)
\t}()
\tp.waitForRoom()
}
"""


def test_fields_of_go_have_their_names_and_the_goroutine_is_told_that_writes(
    tmp_path: Path,
) -> None:
    source = tmp_path / "pool.go"
    source.write_text(GO)
    ran = run(["go", "build", "-o", tmp_path / "pool", source], timeout=120)
    assert ran.returncode == 0, ran.stderr
    with started([tmp_path / "pool"]) as process:
        time.sleep(0.5)
        parts = condition(process.pid)["parts"]
        ran = flagfinder("why", "--json", str(process.pid), timeout=90)
    assert {"p->closed != 0x0", "p->pending < p->limit (signed)"} <= {one["text"] for one in parts}
    assert all(part["owed"] == [] for part in parts), "no goroutine is on a thread"
    report = json.loads(ran.stdout)
    schemas.validate(report)
    link, asleep = report["links"]
    assert link["waits_for"]["name"].startswith("p->pending"), report["story"]
    assert (link["known"], link["at"]["function"]) == ("by-code", "main.(*pool).waitForRoom")
    assert asleep["at"]["function"] == "main.main.func1", report["story"]
    root = report["root"]
    assert (root["kind"], root["task"]) == ("timer", asleep["waiter"]["task"]), report["story"]


def test_a_goroutine_that_writes_elsewhere_is_not_told(tmp_path: Path) -> None:
    """Of an object of the same type, and of the same object another field."""
    source = tmp_path / "pool.go"
    other = GO.replace("\t\tp.pending.Add(-1)", "\t\tq.pending.Add(-1)\n\t\tp.other = q.limit")
    other = other.replace("\tlimit   int32", "\tlimit   int32\n\tother   int32")
    source.write_text(other.replace("\tgo func", "\tq := &pool{limit: 2}\n\tgo func"))
    ran = run(["go", "build", "-o", tmp_path / "pool", source], timeout=120)
    assert ran.returncode == 0, ran.stderr
    with started([tmp_path / "pool"]) as process:
        time.sleep(0.5)
        ran = flagfinder("why", "--json", str(process.pid), timeout=90)
    report = json.loads(ran.stdout)
    assert report["root"]["kind"] == "unknown" and ran.returncode == 1, report["story"]
