# SPDX-License-Identifier: MIT
"""What `events record` says where it can't record all: more processes than it has room for; and
kernels whose sched_switch tells less."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import made_up_events
import pytest
from event_recorder import Recorded, Recorder, wakes
from harness import assert_four_parts, flagfinder, run, with_processes
from made_up_events import THREADS, event_file, events, facts, sleeps

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]
ROUNDS = 10


_SCRIPT = """
import json, subprocess, sys
from flagfinder import _core
from flagfinder.shared.bpf_build import bpf_object
from flagfinder.shared.gated import gated
wanted, command = json.loads(sys.argv[1]), sys.argv[2:]
with gated(command, stdout=subprocess.PIPE) as program:
    request = {"pids": [program.process.pid], "buffer_bytes": 1 << 22, **wanted}
    engine = _core.EventRecorder(json.dumps(request), bpf_object("events"))
    program.release()
    printed, _ = program.process.communicate(timeout=60)
    end = json.loads(engine.finish("program-ended", program.process.returncode))
print(json.dumps([printed.decode(), end]))
"""


def record(
    path: Path, command: Sequence[str | Path], **wanted: object
) -> tuple[str, dict[str, Any]]:
    """Records a program by a request that the command line can't make; what it printed, and how the
    recording ended.
    """
    request = json.dumps({"output": str(path), **wanted})
    ran = run([sys.executable, "-P", "-c", _SCRIPT, request, *command], timeout=90)
    assert ran.returncode == 0, ran.stderr
    printed, end = json.loads(ran.stdout)
    return printed, end


@pytest.mark.parametrize("stateless", [False, True], ids=["state-last", "stateless"])
def test_switches_are_recorded_without_the_tracepoint_s_state(
    recorder: Recorder, tmp_path: Path, stateless: bool
) -> None:
    """As on kernels before 5.18, where the program reads the state from the thread."""
    path = tmp_path / "run.events"
    printed, end = record(path, [recorder.program("wakes"), "mutex"], stateless_switches=stateless)
    assert (end["exit_status"], end["lost"]) == (0, 0)
    roles = {role: int(tid) for role, tid in (line.split() for line in printed.splitlines())}
    recorded = Recorded(path, roles, "")
    found = list(wakes(recorded, roles["waiter"], "futex"))
    assert len(found) >= ROUNDS, "it sleeps, and the call that it sleeps in is known"
    assert {(waker, context) for waker, context, _ in found} == {(roles["waker"], "task")}
    assert flagfinder("events", "check", path).returncode == 0


@pytest.mark.usefixtures("recorder")
def test_processes_beyond_the_table_are_counted_and_named(tmp_path: Path) -> None:
    path = tmp_path / "crowded.events"
    script = "for n in 1 2 3 4 5 6; do sleep 0.3 & done; wait"
    _, end = record(path, ["/bin/sh", "-c", script], most_processes=3)
    assert end["lost_processes"] == 4, "the shell and two of six fit"
    [note] = [note for note in end["notes"] if note["level"] == "lost"]
    dumped = flagfinder("events", "dump", path, "--limit", "100000").stdout
    left_out = re.findall(r"fork (\d+) starts (\d+) of process \2 .*not followed", dumped)
    assert len(left_out) == 4
    parent, first = left_out[0]
    assert f"process {first}, which process {parent} started, is not followed" in note["text"]
    for _, child in left_out:
        assert f"exec {child} " not in dumped
    summary = json.loads(flagfinder("events", "info", "--json", path).stdout)
    assert summary["end"]["lost_processes"] == 4
    assert note in summary["notes"]
    shown = flagfinder("events", "info", path).stdout
    assert "whole processes 4" in shown
    checked = flagfinder("events", "check", path)
    assert checked.returncode == 0
    assert "not followed: 4" in checked.stdout


@pytest.mark.usefixtures("recorder")
def test_with_room_all_processes_are_followed(tmp_path: Path) -> None:
    path = tmp_path / "roomy.events"
    _, end = record(
        path, ["/bin/sh", "-c", "for n in 1 2 3 4 5 6; do sleep 0.1 & done; wait"], most_processes=7
    )
    assert end["lost_processes"] == 0
    assert [note for note in end["notes"] if note["level"] == "lost"] == []
    dumped = flagfinder("events", "dump", path, "--limit", "100000").stdout
    assert len(re.findall(r"exec (\d+) process \1 sleep", dumped)) == 6


def test_a_graph_is_built_where_no_thread_may_be_started(tmp_path: Path) -> None:
    threads = facts(THREADS, [{"tid": 7, "pid": 7, "name": "app"}])
    lines = events(*sleeps(1000, 7), *made_up_events.wakes(5000, 7), *sleeps(9000, 7))
    recording = event_file(tmp_path / "run.events", threads, lines)
    built = set()
    for most in range(1, 7):
        graph = tmp_path / f"{most}.graph"
        ran = with_processes(most, "graph", "build", recording, "-o", graph)
        if most == 1:  # none that notices Ctrl-C
            assert_four_parts(ran.stderr, "The operating system refused a request")
            continue
        assert ran.returncode == 0, (most, ran.stderr)
        built.add(flagfinder("graph", "query", graph, "--json").stdout)
    assert len(built) == 1 and '"tid": 7' in built.pop()
