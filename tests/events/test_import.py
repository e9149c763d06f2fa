# SPDX-License-Identifier: MIT
"""`events import`: a perf recording whose every event is known becomes the same graph as one of
ours.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from event_recorder import Recorder
from harness import flagfinder, live_or_skip, run
from perf_writer import PerfData

pytestmark = pytest.mark.timeout(120)
READ, WRITE = 0, 1
SLEEPS, HARDIRQ = 1, 8
WAITER, WAKER, CHILD = 100, 200, 101
TRACEPOINTS = (
    "sched:sched_switch",
    "sched:sched_waking",
    "raw_syscalls:sys_enter",
    "raw_syscalls:sys_exit",
)
# The tracepoints' descriptions are in tracefs, which is not mounted everywhere. $0 and $@ are the
# command.
WITH_TRACEFS = (
    "mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs "
    '/sys/kernel/tracing; exec "$0" "$@"'
)
# Of tests/events/programs/wakes.c.
ROUNDS = 10


def recording() -> PerfData:
    """A waiter reads, first what a waker writes, then what an interrupt brings; then it starts a
    child.
    """
    perf = PerfData()
    perf.comm(0, 0, WAITER, "waiter")
    perf.comm(0, 0, WAKER, "waker")
    perf.sample("sys_enter", 1000, 0, WAITER, id=READ, args=3)
    perf.sample("sched_switch", 1100, 0, WAITER, prev_pid=WAITER, prev_state=SLEEPS, next_pid=0)
    perf.sample("sched_stat_runtime", 1200, 0, WAITER, pid=WAITER)
    perf.sample("sys_enter", 2000, 1, WAKER, id=WRITE, args=4)
    perf.sample("sched_waking", 2100, 1, WAKER, pid=WAITER, prio=120)
    perf.sample("sys_exit", 2200, 1, WAKER, id=WRITE, ret=8)
    perf.sample("sched_switch", 2300, 0, 0, prev_pid=0, next_pid=WAITER)
    perf.sample("sys_exit", 2400, 0, WAITER, id=READ, ret=8)
    perf.sample("sys_enter", 3000, 0, WAITER, id=READ, args=3)
    perf.sample("sched_switch", 3100, 0, WAITER, prev_pid=WAITER, prev_state=SLEEPS, next_pid=0)
    perf.sample("sched_waking", 4000, 1, WAKER, common_flags=HARDIRQ, pid=WAITER, prio=120)
    perf.sample("sched_switch", 4100, 0, 0, prev_pid=0, next_pid=WAITER)
    perf.sample("sys_exit", 4200, 0, WAITER, id=READ, ret=-11)
    perf.fork(5000, 0, WAITER, CHILD)
    perf.comm(5100, 1, CHILD, "child", is_exec=True)
    perf.lost(6000, 1, 7)
    perf.mapped(7000, 1, CHILD, build_id_bytes=255)  # a length that can't be
    return perf


def imported(tmp_path: Path) -> Path:
    recording().write(tmp_path / "perf.data")
    output = tmp_path / "run.events"
    ran = flagfinder("events", "import", "--json", tmp_path / "perf.data", "-o", output)
    assert ran.returncode == 0, ran.stderr
    fields = json.loads(ran.stdout)
    assert fields["schema"] == "flagfinder.events-import/1"
    assert (fields["events"], fields["lost"], fields["skipped"]) == (
        14,
        7,
        {"sched_stat_runtime": 1},
    )
    return output


def test_every_event_is_taken_over(tmp_path: Path) -> None:
    output = imported(tmp_path)
    assert flagfinder("events", "check", output).returncode == 0
    lines = flagfinder("events", "dump", output).stdout.splitlines()
    assert lines == [
        "1000 cpu0 enter 100 read(0x3)",
        "1100 cpu0 switch 100 -> 0 sleeps read(0x3)",
        "2000 cpu1 enter 200 write(0x4)",
        "2100 cpu1 waking 100 by 200 task in write",
        "2200 cpu1 return 200 write = 8",
        "2300 cpu0 switch 0 -> 100 preempted",
        "2400 cpu0 return 100 read = 8",
        "3000 cpu0 enter 100 read(0x3)",
        "3100 cpu0 switch 100 -> 0 sleeps read(0x3)",
        "4000 cpu1 waking 100 by 200 hardirq",
        "4100 cpu0 switch 0 -> 100 preempted",
        "4200 cpu0 return 100 read = -11",
        "5000 cpu0 fork 100 starts 101 of process 101 waiter",
        "5100 cpu1 exec 101 process 101 child",
        "6000 cpu1 lost 7 events since 5100",
    ]


def test_the_graph_knows_who_woke_whom(tmp_path: Path) -> None:
    output, graph = imported(tmp_path), tmp_path / "run.graph"
    assert flagfinder("graph", "build", output, "-o", graph).returncode == 0
    vertices = json.loads(flagfinder("graph", "query", "--json", graph).stdout)["vertices"]
    causes = {
        (vertex["thread"], cause["edge"], cause["thread"])
        for vertex in vertices
        for cause in vertex["causes"]
        if cause["edge"] != "weak"
    }
    assert causes == {
        ("waiter", "ipc", "waker"),
        ("waiter", "interrupt", None),
        ("child", "fork", "waiter"),
    }
    results = [vertex["result"] for vertex in vertices if vertex["thread"] == "waiter"]
    assert results == [8, -11, None]
    assert json.loads(flagfinder("graph", "info", "--json", graph).stdout)["lost"] == 7


@pytest.mark.parametrize("options", [(), ("-z",)], ids=["plain", "compressed"])
def test_what_perf_itself_recorded_tells_who_woke_whom(
    tmp_path: Path, recorder: Recorder, options: tuple[str, ...]
) -> None:
    """The threads of a program whose every wait is known, in a recording of the whole machine."""
    data, events, graph = (tmp_path / name for name in ("perf.data", "run.events", "run.graph"))
    tracepoints = [word for name in TRACEPOINTS for word in ("-e", name)]
    target = [recorder.program("wakes"), "eventfd"]
    perf = ["perf", "record", "-q", "-a", "-m", "16M", *options, *tracepoints]
    perf += ["-o", str(data), "--", *map(str, target)]
    ran = run(["unshare", "-m", "sh", "-c", WITH_TRACEFS, *perf], timeout=60)
    if ran.returncode != 0:
        live_or_skip(f"perf can't record tracepoints: {ran.stderr}")
    roles = {role: int(tid) for role, tid in (line.split() for line in ran.stdout.splitlines())}
    ran = flagfinder("events", "import", "--json", data, "-o", events)
    assert ran.returncode == 0, ran.stderr
    assert flagfinder("graph", "build", events, "-o", graph).returncode == 0
    shown = flagfinder(
        "graph", "query", "--json", graph, "--tid", str(roles["waiter"]), "--limit", "1000"
    )
    vertices = json.loads(shown.stdout)["vertices"]
    by_waker = [
        cause for vertex in vertices for cause in vertex["causes"] if cause["tid"] == roles["waker"]
    ]
    assert [cause["edge"] for cause in by_waker].count("ipc") >= ROUNDS - 1
    assert {cause["edge"] for cause in by_waker} <= {"ipc", "exit"}
    assert any(vertex["ends_in"] == "read" for vertex in vertices)


def test_what_has_no_switches_or_is_no_recording_is_refused(tmp_path: Path) -> None:
    recording().write(tmp_path / "perf.data", without="sched_switch")
    (tmp_path / "text").write_text("no recording\n" * 20)
    for name, words in (("perf.data", "sched:sched_switch"), ("text", "perf record -a")):
        ran = flagfinder("events", "import", tmp_path / name, "-o", tmp_path / "x")
        assert ran.returncode == 65
        assert words in ran.stderr
        assert not (tmp_path / "x").exists()
