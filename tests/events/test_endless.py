# SPDX-License-Identifier: MIT
"""Waits that never end have their length, and a culprit: whom the thread was seen to wait for."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest
from event_recorder import Recorder
from harness import FLAGFINDER, flagfinder, run
from sizes import in_turn
from test_diagnose import build, diagnosis

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]
SECONDS = "1.5"  # the programs hang for longer
HANG = 1_200_000_000  # ns


def test_a_deadlock_is_named_as_a_circle(recorder: Recorder) -> None:
    recorded = recorder.record("endless", "deadlock", options=("--duration", SECONDS))
    graph = build(recorded)
    found = diagnosis(graph)
    roles = recorded.roles
    assert (found["class"], found["thread"]["tid"], found["unfinished"]) == (
        "LongWait",
        roles["main"],
        True,
    )
    assert found["dur"] >= HANG
    both = {roles["culprit"], roles["other"]}
    assert {culprit["tid"] for culprit in found["culprits"]} == both
    assert found["circular"]
    assert {member["tid"] for member in found["circle"]} == both
    told = flagfinder("diagnose", graph, "--auto").stdout.partition("the hang:")[0]
    assert told.startswith("They wait for each other: ")
    assert f"thread {roles['culprit']} (endless)" in " ".join(told.split())


@pytest.mark.parametrize("mode", in_turn(["unix", "tcp", "backlog", "child", "file", "writer"]))
def test_the_thread_that_never_does_its_part_is_the_culprit(
    recorder: Recorder, tmp_path: Path, mode: str
) -> None:
    recorded = recorder.record(
        "endless", mode, str(tmp_path / "locked"), options=("--duration", SECONDS)
    )
    found = diagnosis(build(recorded))
    assert (found["class"], found["thread"]["tid"]) == ("LongWait", recorded.roles["main"])
    assert found["dur"] >= HANG
    culprit = found["culprits"][0]
    assert (culprit["tid"], culprit["class"], culprit["doing"]) == (
        recorded.roles["culprit"],
        "LongWait",
        "pause",
    )
    assert not found["circular"]


def test_a_mark_in_the_hang_finds_it_though_the_process_is_gone_in_the_end(
    recorder: Recorder, tmp_path: Path
) -> None:
    """Who waits for whom is asked when the mark comes."""
    path = tmp_path / "run.events"
    program = recorder.program("endless")
    script = f"sleep 2; exec {' '.join(map(str, FLAGFINDER))} mark hung"
    marking = ["/bin/sh", "-c", f'({script}) >&2 & exec "$@"', "sh"]
    ran = run(
        [*FLAGFINDER, "events", "record", "-o", path, "--", *marking, program, "deadlock"],
        timeout=60,
    )
    assert ran.returncode == 142, ran.stderr  # the alarm
    roles = {role: int(tid) for role, tid in (line.split() for line in ran.stdout.splitlines())}
    graph = tmp_path / "run.graph"
    assert flagfinder("graph", "build", path, "-o", graph).returncode == 0
    found = diagnosis(graph, "--thread", str(roles["main"]))
    assert {member["tid"] for member in found["circle"]} == {roles["culprit"], roles["other"]}


def test_a_process_that_hung_before_is_explained_without_an_event_of_it(
    recorder: Recorder, tmp_path: Path
) -> None:
    """Nothing of it was recorded: it slept all the time."""
    path = tmp_path / "run.events"
    command = [str(recorder.program("endless")), "deadlock", "", "30"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            roles = {
                role: int(tid)
                for role, tid in (program.stdout.readline().split() for _ in range(3))
            }
            time.sleep(0.5)  # then they wait
            ran = flagfinder(
                "events", "record", "-o", path, "--pid", str(program.pid), "--duration", "1"
            )
        finally:
            program.kill()
    assert ran.returncode == 0, ran.stderr
    graph = tmp_path / "run.graph"
    assert flagfinder("graph", "build", path, "-o", graph).returncode == 0
    ran = flagfinder("diagnose", graph, "--auto", "--json")
    found = json.loads(ran.stdout)
    assert {member["tid"] for member in found["circle"]} == {roles["culprit"], roles["other"]}
