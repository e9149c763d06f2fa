# SPDX-License-Identifier: MIT
"""`events import` of Perfetto traces whose every event is known."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import perfetto_writer as pw
import pytest
from harness import flagfinder
from perfetto.trace_builder.proto_builder import TraceProtoBuilder

pytestmark = pytest.mark.timeout(120)
READ, WRITE, SLEEPS, SIGUSR1, CLONE_THREAD, SOFTIRQ_FLAG = 0, 1, 1, 10, 0x10000, 16
IDLE, WAITER, WAKER, CHILD = (0, "swapper"), (100, "waiter"), (200, "waker"), (101, "worker")
Event = tuple[int, int, str, dict[str, Any]]
TREE = pw.process_tree(
    [(2, 0, "kthreadd"), (100, 1, "/bin/program"), (200, 1, "/bin/waker")], [(100, 100, "waiter")]
)

# Of `full`, as they are dumped.
FULL = [
    "1000 cpu0 enter 100 read(0x3)",
    "1100 cpu0 switch 100 -> 0 sleeps read(0x3)",
    "2000 cpu1 enter 200 write(0x4)",
    "2100 cpu1 waking 100 by 200 unknown in write",
    "2200 cpu1 return 200 write = 8",
    "2300 cpu0 switch 0 -> 100 preempted",
    "2400 cpu0 return 100 read = 8",
    "3000 cpu0 enter 100 read(0x3)",
    "3100 cpu0 switch 100 -> 0 sleeps read(0x3)",
    "4000 cpu1 waking 100 by 200 softirq",
    "4100 cpu0 lost 1 events since 3100",
    "4100 cpu0 switch 0 -> 100 preempted",
    "4200 cpu0 return 100 read = -11",
    "5000 cpu0 fork 100 starts 101 of process 100 waiter",
    "5100 cpu0 rename 101 is now worker",
    "5200 cpu0 signal 10 to 101 by 100 unknown",
]


def full() -> bytes:
    """A waiter reads what a waker writes, and starts a thread; CPU 1 comes first in the file."""
    one = [
        pw.event(2000, 200, pw.SYS_ENTER, (1, WRITE), (2, 4), (2, 9)),
        pw.event(2100, 200, pw.WAKING, (1, "waiter"), (2, 100), (3, 120), (5, 0)),
        pw.event(2200, 200, pw.SYS_EXIT, (1, WRITE), (2, 8)),
        pw.event(3900, 200, pw.SOFTIRQ_ENTRY, (1, 3)),
        pw.event(4000, 200, pw.WAKING, (1, "waiter"), (2, 100), (3, 120), (5, 0)),
        pw.event(4050, 200, pw.SOFTIRQ_EXIT, (1, 3)),
        pw.event(4060, 200, pw.CPU_FREQUENCY, (1, 7)),
    ]
    zero = [
        pw.event(1000, 100, pw.SYS_ENTER, (1, READ), (2, 3)),
        pw.switch(1100, WAITER, SLEEPS, IDLE),
        pw.switch(2300, IDLE, 0, WAITER),
        pw.event(2400, 100, pw.SYS_EXIT, (1, READ), (2, 8)),
        pw.event(3000, 100, pw.SYS_ENTER, (1, READ), (2, 3)),
        pw.switch(3100, WAITER, SLEEPS, IDLE),
    ]
    late = [
        pw.switch(4100, IDLE, 0, WAITER),
        pw.event(4200, 100, pw.SYS_EXIT, (1, READ), (2, -11)),
        pw.event(5000, 100, pw.NEWTASK, (1, 101), (2, "waiter"), (3, CLONE_THREAD)),
        pw.event(5100, 101, pw.RENAME, (1, 101), (2, "waiter"), (3, "worker")),
        pw.event(5200, 100, pw.SIGNAL, (4, 101), (5, 0), (6, SIGUSR1)),
    ]
    return pw.trace(
        pw.machine("x86_64"),
        TREE,
        pw.bundle(1, one),
        pw.compressed(pw.bundle(0, zero)),
        pw.bundle(0, late, lost=True),
    )


def full_of_the_package() -> bytes:
    """The same, by the messages that Perfetto publishes, packed as `traced` packs them."""
    builder = TraceProtoBuilder()
    name = builder.add_packet().system_info.utsname
    name.sysname, name.release, name.machine = "Linux", "6.1", "x86_64"
    tree = builder.add_packet().process_tree
    for pid, parent, command in (
        (2, 0, "kthreadd"),
        (100, 1, "/bin/program"),
        (200, 1, "/bin/waker"),
    ):
        tree.processes.add(pid=pid, ppid=parent, cmdline=[command])
    tree.threads.add(tid=100, tgid=100, name="waiter")
    switch = {"prev_prio": 120, "next_prio": 120}
    to_idle = dict(
        prev_comm="waiter",
        prev_pid=100,
        prev_state=SLEEPS,
        next_comm="swapper",
        next_pid=0,
        **switch,
    )
    to_waiter = dict(
        prev_comm="swapper", prev_pid=0, prev_state=0, next_comm="waiter", next_pid=100, **switch
    )
    wake = {"comm": "waiter", "pid": 100, "prio": 120, "success": 1, "target_cpu": 0}
    one: list[Event] = [
        (2000, 200, "sys_enter", {"id": WRITE, "args": [4, 9]}),
        (2100, 200, "sched_waking", wake),
        (2200, 200, "sys_exit", {"id": WRITE, "ret": 8}),
        (3900, 200, "softirq_entry", {"vec": 3}),
        (4000, 200, "sched_waking", wake),
        (4050, 200, "softirq_exit", {"vec": 3}),
        (4060, 200, "cpu_frequency", {"state": 7}),
    ]
    zero: list[Event] = [
        (1000, 100, "sys_enter", {"id": READ, "args": [3]}),
        (1100, 100, "sched_switch", to_idle),
        (2300, 0, "sched_switch", to_waiter),
        (2400, 100, "sys_exit", {"id": READ, "ret": 8}),
        (3000, 100, "sys_enter", {"id": READ, "args": [3]}),
        (3100, 100, "sched_switch", to_idle),
    ]
    late: list[Event] = [
        (4100, 0, "sched_switch", to_waiter),
        (4200, 100, "sys_exit", {"id": READ, "ret": -11}),
        (5000, 100, "task_newtask", {"pid": 101, "comm": "waiter", "clone_flags": CLONE_THREAD}),
        (5100, 101, "task_rename", {"pid": 101, "oldcomm": "waiter", "newcomm": "worker"}),
        (
            5200,
            100,
            "signal_generate",
            {"code": 0, "comm": "worker", "pid": 101, "result": 0, "sig": SIGUSR1},
        ),
    ]
    packed = TraceProtoBuilder()
    for cpu, events, target in ((1, one, builder), (0, zero, packed), (0, late, builder)):
        bundle = target.add_packet().ftrace_events
        bundle.cpu, bundle.lost_events = cpu, events is late
        for ts, tid, what, fields in events:
            event = bundle.event.add(timestamp=ts, pid=tid)
            message = getattr(event, what)
            for field, value in fields.items():
                if isinstance(value, list):
                    getattr(message, field).extend(value)
                else:
                    setattr(message, field, value)
        if target is packed:
            builder.add_packet().compressed_packets = zlib.compress(packed.serialize())
    return bytes(builder.serialize())


def compact(flags: bool) -> bytes:
    """The same wakes in columns, with flags or without."""
    zero = pw.message(
        (1, pw.deltas([1100, 2300, 3100, 4100])),
        (2, pw.packed([SLEEPS, 0, SLEEPS, 0])),
        (3, pw.packed([0, 100, 0, 100])),
        (5, "swapper"),
        (5, "waiter"),
        (6, pw.packed([0, 1, 0, 1])),
    )
    one = pw.message(
        (1, pw.deltas([900])),
        (2, pw.packed([0])),
        (3, pw.packed([200])),
        (5, "waker"),
        (5, "waiter"),
        (6, pw.packed([0])),
        (7, pw.deltas([2100, 4000])),
        (8, pw.packed([100, 100])),
        (9, pw.packed([0, 0])),
        (10, pw.packed([120, 120])),
        (11, pw.packed([1, 1])),
        *([(12, pw.packed([0, SOFTIRQ_FLAG]))] if flags else []),
    )
    return pw.trace(TREE, pw.bundle(0, [], zero), pw.bundle(1, [], one))


def imported(tmp_path: Path, trace: bytes) -> tuple[Path, dict[str, Any]]:
    (tmp_path / "trace").write_bytes(trace)
    output = tmp_path / "run.events"
    ran = flagfinder("events", "import", "--json", tmp_path / "trace", "-o", output)
    assert ran.returncode == 0, ran.stderr
    assert flagfinder("events", "check", output).returncode == 0
    return output, json.loads(ran.stdout)


def dumped(events: Path) -> list[str]:
    return flagfinder("events", "dump", events).stdout.splitlines()


@pytest.mark.parametrize("trace", [full, full_of_the_package])
def test_every_event_is_taken_over_in_order_of_time(
    tmp_path: Path, trace: Callable[[], bytes]
) -> None:
    output, fields = imported(tmp_path, trace())
    assert (fields["events"], fields["lost"], fields["skipped"]) == (
        15,
        1,
        {"other ftrace events": 1},
    )
    assert dumped(output) == FULL


def causes(tmp_path: Path, events: Path) -> set[tuple[str, str, str | None]]:
    graph = tmp_path / "run.graph"
    assert flagfinder("graph", "build", events, "-o", graph).returncode == 0
    vertices = json.loads(flagfinder("graph", "query", "--json", graph).stdout)["vertices"]
    return {
        (vertex["thread"], cause["edge"], cause["thread"])
        for vertex in vertices
        for cause in vertex["causes"]
        if cause["edge"] != "weak"
    }


def test_compact_switches_tell_the_same(tmp_path: Path) -> None:
    output, fields = imported(tmp_path, compact(flags=True))
    assert fields["skipped"] == {"sched_switch away from an unknown thread": 1}
    assert dumped(output) == [
        "900 cpu1 switch 0 -> 200 preempted",
        "2100 cpu1 waking 100 by 200 task",
        "2300 cpu0 switch 0 -> 100 preempted",
        "3100 cpu0 switch 100 -> 0 sleeps",
        "4000 cpu1 waking 100 by 200 softirq",
        "4100 cpu0 switch 0 -> 100 preempted",
    ]
    assert causes(tmp_path, output) == {("waiter", "wake", "waker"), ("waiter", "interrupt", None)}


def test_a_context_that_was_not_recorded_is_unknown(tmp_path: Path) -> None:
    output, _ = imported(tmp_path, compact(flags=False))
    assert causes(tmp_path, output) == {("waiter", "unknown", "waker")}


def test_calls_of_another_machine_are_left_out(tmp_path: Path) -> None:
    events = [
        pw.event(1000, 100, pw.SYS_ENTER, (1, READ), (2, 3)),
        pw.switch(1100, WAITER, SLEEPS, IDLE),
    ]
    output, fields = imported(tmp_path, pw.trace(pw.machine("aarch64"), pw.bundle(0, events)))
    assert fields["skipped"] == {"calls of another machine": 1}
    assert dumped(output) == ["1100 cpu0 switch 100 -> 0 sleeps"]


def test_a_cut_trace_is_taken_over_as_far_as_it_goes(tmp_path: Path) -> None:
    output, fields = imported(tmp_path, full()[:-1])
    assert fields["skipped"] == {"other ftrace events": 1, "what follows a packet that is cut": 1}
    assert dumped(output)[-1] == "4000 cpu1 waking 100 by 200 softirq"


def test_a_trace_without_switches_is_refused(tmp_path: Path) -> None:
    (tmp_path / "trace").write_bytes(pw.trace(TREE))
    ran = flagfinder("events", "import", tmp_path / "trace", "-o", tmp_path / "x")
    assert ran.returncode == 65
    assert "sched_switch" in ran.stderr
    assert not (tmp_path / "x").exists()
