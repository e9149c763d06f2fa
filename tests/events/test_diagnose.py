# SPDX-License-Identifier: MIT
"""`graph` and `diagnose` on programs that are late for a known reason: edges are right, the true
culprit is named.
"""

from __future__ import annotations

import json
import os
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from event_recorder import Recorded, Recorder
from harness import FLAGFINDER, command_into, flagfinder, run
from sizes import in_turn

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]
ROUNDS = 10
HANG = 300_000_000  # ns; the programs are late by more


def build(recorded: Recorded, *flags: str | Path) -> Path:
    """The graph of a recording."""
    graph = recorded.path.with_suffix(".graph")
    ran = flagfinder("graph", "build", recorded.path, "-o", graph, *flags)
    assert ran.returncode == 0, ran.stderr
    return graph


def vertices(graph: Path, tid: int) -> list[dict[str, Any]]:
    ran = flagfinder("graph", "query", graph, "--tid", tid, "--limit", "10000", "--json")
    assert ran.returncode == 0, ran.stderr
    found: list[dict[str, Any]] = json.loads(ran.stdout)["vertices"]
    return found


def diagnosis(graph: Path, *options: str, codes: tuple[int, ...] = (0,)) -> dict[str, Any]:
    """``codes``: the exit codes that the test allows. 1: nobody is named."""
    ran = flagfinder("diagnose", graph, "--auto", "--json", *options)
    assert ran.returncode in codes, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    assert found["schema"] == "flagfinder.diagnose/1"
    assert found["questions"] == 0
    assert found["lost"] == 0
    return found


def causes_after(graph: Path, tid: int, call: str) -> list[tuple[str, int | None]]:
    """(edge, thread it comes from) of what ended each wait of the thread in `call`, weak edges left
    out.

    So is the recorder, which holds the program back until it is ready: it is not in the tree and
    has no name.
    """
    after = [now for before, now in pairwise(vertices(graph, tid)) if before["ends_in"] == call]
    causes = [cause for vertex in after for cause in vertex["causes"] if cause["edge"] != "weak"]
    return [(cause["edge"], cause["tid"]) for cause in causes if cause["thread"] != ""]


@pytest.mark.parametrize(
    ("mode", "call", "edge"),
    in_turn(
        [
            ("mutex", "futex", "wake"),
            ("eventfd", "read", "ipc"),
            ("socketpair", "read", "ipc"),
            ("loopback", "read", "ipc"),
            ("signal", "pause", "signal"),
        ]
    ),
)
def test_a_wake_becomes_an_edge_from_the_waker(
    recorder: Recorder, mode: str, call: str, edge: str
) -> None:
    recorded = recorder.record("wakes", mode)
    found = causes_after(build(recorded), recorded.roles["waiter"], call)
    assert len(found) >= ROUNDS
    # A thread that waits for the waker's end waits for a futex, too.
    assert {kind for kind, _ in found} - {"exit"} == {edge}
    assert {tid for _, tid in found} == {recorded.roles["waker"]}
    waits = [
        v
        for v in vertices(recorded.path.with_suffix(".graph"), recorded.roles["waiter"])
        if v["ends_in"] == call
    ]
    if call != "futex":
        assert {vertex["futex"] for vertex in waits} == {None}
        return
    # The word of each is the first argument of its call: of the mutex always the same.
    dumped = flagfinder("events", "dump", recorded.path, "--limit", "100000").stdout
    words = [vertex["futex"] for vertex in waits]
    assert max(map(words.count, words)) >= ROUNDS
    assert all(f"sleeps futex({word})" in dumped for word in words)


@pytest.mark.parametrize(("mode", "call"), [("timer", "read"), ("sleep", "clock_nanosleep")])
def test_a_timer_s_edge_comes_from_who_armed_it(recorder: Recorder, mode: str, call: str) -> None:
    recorded = recorder.record("wakes", mode)
    found = causes_after(build(recorded), recorded.roles["waiter"], call)
    assert len(found) >= ROUNDS
    assert {kind for kind, _ in found} == {"timer"}
    assert {tid for _, tid in found} <= {recorded.roles["waiter"], None}


@pytest.mark.parametrize("how", in_turn(["pipe", "stream", "datagram", "tcp"]))
def test_a_message_that_woke_nobody_leads_to_its_sender(recorder: Recorder, how: str) -> None:
    """All is written before it is read: the reader's waits are for a timer, and its sender is known
    all the same.
    """
    recorded = recorder.record("wakes", "early", how, options=("--syscalls", "target"))
    waker = recorded.roles["waker"]
    found = [
        (cause["edge"], cause["tid"])
        for vertex in vertices(build(recorded), recorded.roles["waiter"])
        for cause in vertex["causes"]
        if cause["tid"] == waker and cause["edge"] != "exit"
    ]
    assert found
    assert set(found) == {("ipc", waker)}


@pytest.mark.usefixtures("recorder")
def test_a_waker_from_outside_the_target_has_a_name(tmp_path: Path) -> None:
    fifo, path = tmp_path / "fifo", tmp_path / "run.events"
    os.mkfifo(fifo)
    script = f"exec 3>{fifo}; for i in 1 2 3; do sleep 0.3; echo $i >&3; done"
    with subprocess.Popen(["/bin/sh", "-c", script]) as writer:
        ran = flagfinder("events", "record", "-o", path, "--", "/bin/cat", fifo)
    assert ran.returncode == 0, ran.stderr
    graph = build(Recorded(path, {}, ""))
    ran = flagfinder("graph", "query", graph, "--limit", "10000", "--json")
    causes = [cause for vertex in json.loads(ran.stdout)["vertices"] for cause in vertex["causes"]]
    named = {cause["thread"] for cause in causes if cause["tid"] == writer.pid}
    assert named == {"sh"}


@pytest.mark.parametrize(
    ("what", "hang_class", "links", "syscalls"),
    in_turn(
        [
            (what, hang_class, links, syscalls)
            for links in ("pipes", "sockets")
            for syscalls in ("lazy", "target")
            for what, hang_class in [
                ("computes", "LongRunning"),
                ("sleeps", "LongWait"),
                ("polls", "RepeatedYield"),
            ]
        ]
    ),
)
def test_the_last_of_four_processes_is_blamed(
    recorder: Recorder, what: str, hang_class: str, links: str, syscalls: str
) -> None:
    recorded = recorder.record("hangs", "chain", what, links, options=("--syscalls", syscalls))
    found = diagnosis(build(recorded))
    assert found["class"] == "LongWait"
    assert found["thread"]["tid"] == recorded.roles["main"]
    assert found["dur"] >= HANG
    culprit = found["culprits"][0]
    assert (culprit["tid"], culprit["class"]) == (recorded.roles["culprit"], hang_class)
    assert not found["circular"]
    assert found["baseline"] is not None
    assert bool(found["advice"]) == (what == "polls")


def test_behind_a_lock_and_a_condition_the_one_who_computes_is_blamed(recorder: Recorder) -> None:
    recorded = recorder.record("hangs", "lock")
    found = diagnosis(build(recorded))
    assert found["class"] == "LongWait"
    culprit = found["culprits"][0]
    assert (culprit["tid"], culprit["class"]) == (recorded.roles["culprit"], "LongRunning")


def test_a_thread_that_computes_has_itself_to_blame(recorder: Recorder) -> None:
    recorded = recorder.record("hangs", "alone")
    found = diagnosis(build(recorded))
    assert found["class"] == "LongRunning"
    assert [culprit["tid"] for culprit in found["culprits"]] == [recorded.roles["main"]]


def test_a_circle_is_recognised(recorder: Recorder) -> None:
    recorded = recorder.record("hangs", "circle")
    found = diagnosis(build(recorded), "--thread", str(recorded.roles["main"]))
    assert found["class"] == "LongWait"
    assert found["culprits"][0]["tid"] == recorded.roles["culprit"]
    assert found["circular"]


def test_unusual_stretches_are_listed_with_the_reason(recorder: Recorder) -> None:
    recorded = recorder.record("hangs", "lock")
    graph = build(recorded)
    ran = flagfinder("diagnose", graph, "--hangs", "--json")
    assert ran.returncode == 0, ran.stderr
    listed = json.loads(ran.stdout)["hangs"]
    found = diagnosis(graph)
    assert found["hang"] == listed[0]
    assert (listed[0]["why"], listed[0]["unusual"]) == ("longer", True)
    assert listed[0]["start"] == found["start"]
    assert all(one["unusual"] for one in found["others"])
    shown = " ".join(flagfinder("diagnose", graph, "--hangs").stdout.split())
    assert "shorter waits in the same place took about" in shown
    asked = shown.partition("(")[2].partition(")")[0].split()
    again = diagnosis(graph, *asked)
    assert again["start"] == found["start"], "the line says how to ask for the stretch"


@pytest.mark.usefixtures("recorder")
def test_where_nobody_is_known_nobody_is_blamed(tmp_path: Path) -> None:
    """A lock of Python's says nothing of its owner, and nobody ever ended such a wait."""
    path = tmp_path / "run.events"
    code = "import threading; a = threading.Lock(); a.acquire(); a.acquire()"
    command = ["/usr/bin/python3", "-c", f"import signal; signal.alarm(4); {code}"]
    flagfinder("events", "record", "-o", path, "--duration", "2", "--", *command)
    graph = build(Recorded(path, {}, ""))
    ran = flagfinder("diagnose", graph, "--auto", "--json")
    assert ran.returncode == 1, ran.stderr
    assert json.loads(ran.stdout)["culprits"] == []
    shown = flagfinder("diagnose", graph, "--auto")
    assert "Nobody is known to owe the end of it." in shown.stdout
    emitted = flagfinder("diagnose", graph, "--auto", "--emit", "gdb")
    assert (emitted.returncode, emitted.stdout) == (2, "")
    assert "There is nothing to stop at" in emitted.stderr
    page = tmp_path / "page.html"
    assert flagfinder("report", graph, "-o", page).returncode == 0
    assert "Nobody is known to owe the end of it." in page.read_text()


def test_the_first_line_says_who_did_what_and_lines_are_as_wide_as_the_terminal(
    recorder: Recorder,
) -> None:
    """Of a recording, without a file of its graph."""
    recorded = recorder.record("hangs", "chain", "sleeps")
    found = diagnosis(recorded.path)
    assert found == diagnosis(build(recorded))
    culprit = recorded.roles["culprit"]
    command = [*FLAGFINDER, "diagnose", recorded.path, "--auto"]
    wide, narrow = (
        run(["env", f"COLUMNS={columns}", *command], timeout=60) for columns in (200, 60)
    )
    first = wide.stdout.splitlines()[0]
    assert first.startswith(
        f"Thread {culprit} (hangs) of process {culprit} waited in clock_nanosleep for "
    )
    assert first.endswith(f"; thread {recorded.roles['main']} (hangs) waited for that.")
    assert max(map(len, narrow.stdout.splitlines())) <= 60
    assert narrow.stdout.split() == wide.stdout.split()


_READER = """\
import os, sys, threading, time
asked, answered = threading.Semaphore(0), threading.Semaphore(0)
file = os.open(sys.argv[1], os.O_RDONLY)
def serve():
    for request in range(12):
        asked.acquire()
        for block in range(3000 if request == 8 else 1):
            for _ in range(4):
                os.pread(file, 4096, block * 4096)
            time.sleep(0.0001)
        answered.release()
threading.Thread(target=serve).start()
for _ in range(12):
    asked.release()
    answered.acquire()
    time.sleep(0.01)
"""


@pytest.mark.usefixtures("recorder")
def test_what_an_owner_did_is_counted_in_plain_words(tmp_path: Path) -> None:
    """It reads a file in many short calls: none of them is a hang."""
    big, path = tmp_path / "big.bin", tmp_path / "run.events"
    big.write_bytes(bytes(1 << 20))
    command = ["/usr/bin/python3", "-c", _READER, big]
    ran = flagfinder("events", "record", "-o", path, "--syscalls", "target", "--", *command)
    assert ran.returncode == 0, ran.stderr
    graph = build(Recorded(path, {}, ""))
    culprit = diagnosis(graph)["culprits"][0]
    assert culprit["known"] == "ended"
    reads = next(one for one in culprit["work"]["counted"] if one["call"] == "pread64")
    assert 11_000 <= reads["count"] <= 12_100
    assert reads["target"].endswith("big.bin")
    shown = " ".join(flagfinder("diagnose", graph, "--auto").stdout.split())
    assert f"{reads['count']:,} pread64 of {reads['target']}, " in shown
    assert " on a CPU" in shown


def test_what_watch_saw_becomes_flag_edges(recorder: Recorder, tmp_path: Path) -> None:
    """A write and a read of the same value, at times when both threads ran."""
    recorded = recorder.record("wakes", "eventfd")
    plain = build(recorded)
    waiter, waker = recorded.roles["waiter"], recorded.roles["waker"]
    written = vertices(plain, waker)[3]
    read = next(vertex for vertex in vertices(plain, waiter) if vertex["start"] > written["start"])
    lines = [
        {
            "event": "data_flag_write",
            "ts": written["start"],
            "tid": waker,
            "watch": 1,
            "value": "0x1",
        },
        {"event": "data_flag_read", "ts": read["start"], "tid": waiter, "watch": 1, "value": "0x1"},
        {"event": "data_flag_read", "ts": read["start"], "tid": waiter, "watch": 1, "value": "0x2"},
    ]
    watched = tmp_path / "watch.jsonl"
    watched.write_text("\n".join(json.dumps(line) for line in lines))
    graph = build(recorded, "--flags", watched)
    edges = [
        (cause["tid"], vertex["start"])
        for vertex in vertices(graph, waiter)
        for cause in vertex["causes"]
        if cause["edge"] == "flag"
    ]
    assert edges == [(waker, read["start"])]


def test_damaged_graphs_are_refused(recorder: Recorder, tmp_path: Path) -> None:
    whole = build(recorder.record("wakes", "sleep")).read_bytes()
    (tmp_path / "x").write_bytes(whole[:-1])
    assert flagfinder("graph", "info", tmp_path / "x").returncode == 65
    for place in range(64, len(whole), max(1, len(whole) // 20)):
        damaged = bytearray(whole)
        damaged[place] ^= 0x55
        (tmp_path / "x").write_bytes(damaged)
        code = flagfinder("graph", "info", tmp_path / "x").returncode
        assert code == 65, f"byte {place}"


def test_losses_are_told_by_the_graph(recorder: Recorder, tmp_path: Path) -> None:
    recorded = recorder.record("wakes", "chain", options=("--syscalls", "target"))
    assert json.loads(flagfinder("graph", "info", build(recorded), "--json").stdout)["lost"] == 0
    script = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); [ -e / ]; done"
    path = tmp_path / "lossy.events"
    options = ["--syscalls", "target", "--buffer", "64K", "-q"]
    flagfinder("events", "record", "-o", path, *options, "--", "/bin/sh", "-c", script)
    graph = build(Recorded(path, {}, ""))
    info = json.loads(flagfinder("graph", "info", graph, "--json").stdout)
    assert info["lost"] > 0
    assert len(info["gaps"]) > 0


# A child takes a file's lock and keeps it for a while; the parent asks each 10 ms, and never waits.
_POLLS = """
import fcntl, os, sys, time
take, path = getattr(fcntl, sys.argv[1]), sys.argv[2]
read, write = os.pipe()
child = os.fork()
file = open(path, "w")
if not child:
    time.sleep(0.3)
    take(file, fcntl.LOCK_EX)
    time.sleep(0.8)
    os._exit(0)
print(child)
for _ in range(150):
    time.sleep(0.01)
    try:
        take(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        take(file, fcntl.LOCK_UN)
    except OSError:
        continue
"""


@pytest.mark.parametrize("how", ["lockf", "flock"])
def test_who_asks_for_a_files_lock_again_and_again_waits_for_who_has_it(
    tmp_path: Path, how: str
) -> None:
    path = tmp_path / "polls.events"
    command = ["/usr/bin/python3", "-c", _POLLS, how, tmp_path / "file"]
    ran = run([*command_into(path, "events record", "-q"), "--", *command], timeout=60)
    assert ran.returncode == 0, ran.stderr
    found = diagnosis(build(Recorded(path, {}, "")))
    assert [culprit["tid"] for culprit in found["culprits"]] == [int(ran.stdout)]
    assert found["doing"].endswith(" for a file's lock")
