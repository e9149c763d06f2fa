# SPDX-License-Identifier: MIT
"""`events record` where pid namespaces are: ids are those of the recorder's own namespace."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from event_recorder import Recorder, wakes
from harness import FLAGFINDER, command_into, flagfinder, pid_namespace, run, started

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]
ROUNDS = 10
# Added to ids of threads that the recorder's namespace does not show.
ELSEWHERE = 1 << 30
HIGHEST_INSIDE = 1000


@pytest.fixture
def inside() -> Iterator[list[str]]:
    with pid_namespace() as prefix:
        yield prefix


@pytest.mark.parametrize("options", [(), ("--all", "--syscalls", "target")], ids=["own", "all"])
def test_a_program_is_recorded_with_its_children(
    recorder: Recorder, inside: list[str], options: tuple[str, ...]
) -> None:
    recorded = recorder.record("wakes", "chain", options=options, under=inside)
    names = ["first", "second", "third"]
    assert max(recorded.roles.values()) < HIGHEST_INSIDE
    for name, before in zip(names, ["third", "first", "second"], strict=True):
        found = list(wakes(recorded, recorded.roles[name], "read"))
        assert len(found) >= ROUNDS
        assert {(waker, context) for waker, context, _ in found} == {
            (recorded.roles[before], "task")
        }
    checked = flagfinder("events", "check", recorded.path)
    assert checked.returncode == 0, checked.stdout


def test_threads_are_told_by_the_ids_that_they_see(recorder: Recorder, inside: list[str]) -> None:
    recorded = recorder.record("wakes", "mutex", options=("--stacks", "all"), under=inside)
    found = list(wakes(recorded, recorded.roles["waiter"], "futex"))
    assert {waker for waker, context, _ in found if context == "task"} == {recorded.roles["waker"]}
    summary = json.loads(flagfinder("events", "info", "--json", recorded.path).stdout)
    assert summary["different_stacks"] > 0, "code was found in /proc by this id"
    waker = recorded.roles["waker"]
    lines = flagfinder("events", "dump", recorded.path, "--tid", waker).stdout.splitlines()
    last = max(n for n, line in enumerate(lines) if f" exit {waker} " in line)
    assert any(f" switch {waker} " in line for line in lines[last:]), "its last switch has its id"


def record_while(path: Path, inside: list[str], pid: int) -> str:
    """Records a process of the namespace for two seconds; the events as text."""
    command = [*inside, *command_into(path, "events record", "--pid", pid, "--duration", "2")]
    ran = run(command, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return flagfinder("events", "dump", path, "--limit", 100000).stdout


@pytest.mark.usefixtures("recorder")
def test_a_process_by_its_id_inside_and_what_it_starts(inside: list[str], tmp_path: Path) -> None:
    script = "echo $$; while :; do sleep 0.05; done"
    with started([*inside, "sh", "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        text = record_while(tmp_path / "run.events", inside, pid)
    born = [int(n) for n in re.findall(rf"fork {pid} starts (\d+) of process \1 ", text)]
    ran = [int(n) for n in re.findall(r"exec (\d+) process \1 sleep", text)]
    assert len(born) > 5
    assert set(ran) <= set(born)
    assert len(ran) > 5
    assert all(pid < child < HIGHEST_INSIDE for child in born)


@pytest.mark.usefixtures("recorder")
def test_a_waker_outside_is_told_apart(inside: list[str], tmp_path: Path) -> None:
    script = "echo $$; while read line; do echo $line; done"
    path = tmp_path / "run.events"
    words = [*inside, "sh", "-c", script]
    with started(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        pid = int(process.stdout.readline())
        command = [*inside, *FLAGFINDER, "events", "record", "-o", str(path), "--pid", str(pid)]
        recording = subprocess.Popen(command, start_new_session=True)
        while not path.exists() or flagfinder("events", "info", path).returncode != 0:
            assert recording.poll() is None
        # The file is there a moment before the first event is.
        for _ in range(100):
            process.stdin.write("go\n")
            process.stdin.flush()
            assert process.stdout.readline() == "go\n"
            time.sleep(0.02)
        process.stdin.close()
        assert recording.wait(timeout=60) == 0
    text = flagfinder("events", "dump", path, "--limit", 100000).stdout
    wakers = {int(waker) for waker in re.findall(rf"waking {pid} by (\d+) task", text)}
    assert any(waker >= ELSEWHERE for waker in wakers), text[-2000:]
    if Path("/proc/self/ns/pid").readlink().name == "pid:[4026531836]":
        assert ELSEWHERE + os.getpid() in wakers
