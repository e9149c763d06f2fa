# SPDX-License-Identifier: MIT
"""`events top` on a program whose waits and delays are known: counted by the kernel, and from a
recording of the same.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from event_recorder import Recorder
from harness import FLAGFINDER, flagfinder, run, wait_until
from schemas import validate

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]
SLEEPS, SLEEP_NS = 5, 20_000_000

Answer = tuple[dict[str, Any], dict[str, int]]


def roles_of(text: str) -> dict[str, int]:
    return {name: int(tid) for name, tid in (line.split() for line in text.splitlines())}


def count(recorder: Recorder, folder: Path, *options: str) -> Answer:
    """What the kernel counted, and who is who."""
    path = folder / "top.json"
    command = [
        *FLAGFINDER,
        "events",
        "top",
        "--json-file",
        path,
        *options,
        "--",
        recorder.program("top"),
    ]
    ran = run(command, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return answer(path.read_text()), roles_of(ran.stdout)


def answer(text: str) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(text)
    validate(fields)
    return fields


def of_file(path: Path, *options: str) -> dict[str, Any]:
    return answer(flagfinder("events", "top", "--json", path, *options).stdout)


@pytest.fixture(scope="module")
def counted(recorder: Recorder, tmp_path_factory: pytest.TempPathFactory) -> Answer:
    return count(recorder, tmp_path_factory.mktemp("counted"), "--all")


@pytest.fixture(scope="module")
def recorded(recorder: Recorder) -> tuple[Path, dict[str, int]]:
    options = ("--all", "--syscalls", "target", "--stacks", "all", "--stack-budget", "31")
    found = recorder.record("top", options=options)
    return found.path, found.roles


@pytest.fixture(params=["kernel", "file"])
def either(request: pytest.FixtureRequest) -> Answer:
    if request.param == "kernel":
        live: Answer = request.getfixturevalue("counted")
        return live
    path, roles = request.getfixturevalue("recorded")
    return of_file(path), roles


def test_waits_are_summed_up_by_place(either: Answer) -> None:
    top, roles = either
    [sleeps] = [
        row for row in top["waits"] if row["tid"] == roles["sleeper"] and "nanosleep" in row["call"]
    ]
    assert sleeps["count"] == SLEEPS
    assert sleeps["total"] >= SLEEPS * SLEEP_NS
    assert sleeps["total"] >= sleeps["longest"] >= SLEEP_NS
    assert (sleeps["thread"], sleeps["errno"], sleeps["unfinished"]) == ("top", None, 0)
    assert sleeps["code"].startswith("nap (")
    names = [site.split("+")[0] for site in sleeps["stack"]]
    assert names.index("nap") < names.index("outer") < names.index("sleeper")


def test_a_histogram_has_all_waits_of_a_thread_in_a_call(either: Answer) -> None:
    top, roles = either
    [calls] = [
        row for row in top["calls"] if row["tid"] == roles["sleeper"] and "nanosleep" in row["call"]
    ]
    bars = calls["histogram"]
    assert sum(bar["count"] for bar in bars) == calls["count"] == SLEEPS
    assert bars[0]["to"] > SLEEP_NS
    assert all(one["to"] == other["from"] for one, other in itertools.pairwise(bars))


def test_a_wait_that_does_not_end_is_counted(either: Answer) -> None:
    top, roles = either
    [stuck] = [
        row for row in top["waits"] if row["tid"] == roles["stuck"] and row["call"] == "read"
    ]
    assert stuck["count"] == 1
    assert stuck["total"] == stuck["longest"] > 0


def test_who_had_the_processor_is_named(either: Answer) -> None:
    top, roles = either
    pair = {roles["one"], roles["other"]}
    delays = {row["tid"]: row for row in top["delays"] if row["tid"] in pair}
    assert delays.keys() == pair
    for tid, delay in delays.items():
        others = {one["tid"]: one["total"] for one in delay["instead"]}
        assert tid not in others
        assert others[(pair - {tid}).pop()] > 0
        assert sum(others.values()) <= delay["total"]
        assert sum(bar["count"] for bar in delay["histogram"]) == delay["count"]


def test_the_kernel_counts_what_was_asked_for_only(recorder: Recorder, tmp_path: Path) -> None:
    top, roles = count(
        recorder, tmp_path, "--min-wait", "15ms", "--call", "clock_nanosleep", "--call", "futex"
    )
    assert {row["call"] for row in top["waits"]} <= {"clock_nanosleep", "futex"}
    assert all(row["longest"] >= 15_000_000 for row in [*top["waits"], *top["delays"]])
    assert sum(row["count"] for row in top["waits"] if row["tid"] == roles["sleeper"]) == SLEEPS


@pytest.mark.parametrize("source", ["kernel", "file"])
def test_waits_are_told_apart_by_what_their_call_returned(
    source: str, recorder: Recorder, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if source == "kernel":
        top, roles = count(recorder, tmp_path, "--errno", "ETIMEDOUT", "--no-stacks")
    else:
        path, roles = request.getfixturevalue("recorded")
        top = of_file(path, "--errno", "ETIMEDOUT", "--no-stacks")
    [wait] = top["waits"]
    assert (wait["tid"], wait["call"], wait["errno"], wait["stack"]) == (
        roles["timed"],
        "futex",
        "ETIMEDOUT",
        [],
    )
    assert wait["longest"] >= SLEEP_NS / 2


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A program that reads a FIFO, into which nobody has written."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    both_ends = os.open(fifo, os.O_RDWR)
    with subprocess.Popen(["cat"], stdin=both_ends, stdout=subprocess.DEVNULL) as process:
        reads = Path(f"/proc/{process.pid}/syscall")
        wait_until(process, lambda: reads.read_text().startswith("0 "))
        yield process, fifo
        process.kill()
    os.close(both_ends)


def counted_either_way(source: str, folder: Path, *words: str) -> dict[str, Any]:
    """What is counted while it happens or from a recording."""
    path = folder / "counted"
    action = ["top", "--json-file", path] if source == "kernel" else ["record", "-q", "-o", path]
    ran = run([*FLAGFINDER, "events", *action, *words], timeout=60)
    assert ran.returncode == 0, ran.stderr
    return answer(path.read_text()) if source == "kernel" else of_file(path)


@pytest.mark.usefixtures("recorder")
@pytest.mark.parametrize(("source", "call"), [("kernel", "read"), ("file", "")])
def test_a_wait_that_began_before_is_told_when_it_ends(
    source: str, call: str, reader: tuple[subprocess.Popen[bytes], Path], tmp_path: Path
) -> None:
    process, fifo = reader
    target = ("--all",) if source == "kernel" else ("--pid", str(process.pid))
    top = counted_either_way(
        source, tmp_path, *target, "--", "sh", "-c", f"echo > {fifo}; sleep 0.2"
    )
    [wait] = [row for row in top["earlier"] if row["tid"] == process.pid]
    assert (wait["thread"], wait["call"], wait["unfinished"]) == ("cat", call, False)
    assert 0 < wait["dur"] <= top["span"]
    if source == "file":
        assert top["earlier"] == [wait], "the program was held back: it did not wait"


@pytest.mark.usefixtures("recorder")
@pytest.mark.parametrize("source", ["kernel", "file"])
def test_a_wait_that_lasts_all_the_time_is_told(
    source: str, reader: tuple[subprocess.Popen[bytes], Path], tmp_path: Path
) -> None:
    process, _ = reader
    top = counted_either_way(source, tmp_path, "--pid", str(process.pid), "--duration", "0.3")
    [wait] = top["earlier"]
    assert (wait["tid"], wait["call"], wait["unfinished"]) == (process.pid, "read", True)
    assert (wait["dur"], top["waits"]) == (top["span"], [])


def test_a_recording_is_filtered_by_thread_and_process(
    recorded: tuple[Path, dict[str, int]],
) -> None:
    path, roles = recorded
    of_thread = of_file(path, "--tid", str(roles["sleeper"]))
    assert {row["tid"] for row in [*of_thread["waits"], *of_thread["delays"]]} == {roles["sleeper"]}
    everything = of_file(path)
    [pid] = {row["pid"] for row in everything["waits"] if row["tid"] == roles["sleeper"]}
    of_process = of_file(path, "--pid", str(pid))
    assert (
        {row["pid"] for row in of_process["waits"]}
        == {pid}
        < {row["pid"] for row in everything["waits"]}
    )
    named = of_file(path, "--threads", "nobody*")
    assert (named["waits"], named["delays"]) == ([], [])
    shown = flagfinder("events", "top", path, "--tid", str(roles["sleeper"]))
    assert f"thread {roles['sleeper']} (top) of process {pid}" in shown.stdout
    assert "blocked, by place" in shown.stdout


@pytest.mark.usefixtures("recorder")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--call", "snooze", "--all"], "no such system call"),
        (["--errno", "EWHAT", "--all"], "no such error"),
        (["--min-wait", "soon", "--all"], "is no number of seconds"),
        ([], "nothing to count"),
        (["--pid", "4194305"], "no such process"),
    ],
)
def test_a_wrong_question_is_refused(words: list[str], told: str) -> None:
    ran = flagfinder("events", "top", *words)
    assert ran.returncode == 2
    assert told in ran.stderr
    assert "fix:" in ran.stderr


def test_a_recording_without_results_can_t_tell_them(recorder: Recorder) -> None:
    recorded = recorder.record("top")
    ran = flagfinder("events", "top", recorded.path, "--errno", "EAGAIN")
    assert ran.returncode == 2
    assert "--syscalls target" in ran.stderr
