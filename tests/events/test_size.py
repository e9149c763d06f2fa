# SPDX-License-Identifier: MIT
"""`events record --size`: the oldest events go, the file stays within its size and readable, and
facts survive.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from event_recorder import Recorder
from harness import command_into, flagfinder, started

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]
SIZE = 1 << 20
# Two calls for each byte, a thread with a name of its own that comes before them, and a file to
# tell that they began.
SCRIPT = """
import os, sys, threading, time
def pass_on():
    open("/proc/thread-self/comm", "w").write("messenger")
    while True:
        time.sleep(0.001)
threading.Thread(target=pass_on, daemon=True).start()
while True:
    os.getppid()
"""


def disk_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512


@pytest.fixture
def recording(tmp_path: Path, recorder: Recorder) -> Path:  # noqa: ARG001 (it says whether recording is possible)
    """A recording of more than its size, whose recorder was killed; its size was kept to all the
    time.
    """
    path = tmp_path / "always.events"
    options = ["--size", "1M", "--syscalls", "target", "--stacks", "all", "-q"]
    command = [
        *command_into(path, "events record", *options),
        "--",
        "/usr/bin/python3",
        "-c",
        SCRIPT,
    ]
    with started([str(word) for word in command]) as process:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not (
            path.exists() and path.stat().st_size > 2 * SIZE
        ):
            assert process.poll() is None
            assert not path.exists() or disk_bytes(path) <= SIZE
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    assert path.stat().st_size > 2 * SIZE
    return path


def test_the_oldest_events_go_and_the_rest_can_be_read(recording: Path, tmp_path: Path) -> None:
    assert disk_bytes(recording) <= SIZE
    summary = json.loads(flagfinder("events", "info", "--json", recording).stdout)
    assert summary["size_bytes"] == SIZE
    assert summary["bytes"] <= SIZE
    assert summary["before"]["events"] > 0
    assert summary["damaged_blocks"] <= 1  # the last block is cut when the kill meets it
    assert summary["different_stacks"] > 0
    assert "were dropped" in flagfinder("events", "info", recording).stdout
    checked = json.loads(flagfinder("events", "check", "--json", recording).stdout)
    allowed = ("recorder was killed", "block is cut")
    assert all(any(words in line for words in allowed) for line in checked["violations"]), checked
    graph = tmp_path / "always.graph"
    assert flagfinder("graph", "build", recording, "-o", graph).returncode == 0
    info = flagfinder("graph", "info", "--json", graph)
    assert json.loads(info.stdout)["stacks"] > 0
    # The thread's name was given before what is left of the recording.
    found = flagfinder("graph", "query", graph, "--json").stdout
    assert "messenger" in found
    assert "clock_nanosleep" in found


def test_a_size_too_small_is_a_usage_error(tmp_path: Path) -> None:
    ran = flagfinder("events", "record", "-o", tmp_path / "x", "--size", "64K", "--", "/bin/true")
    assert ran.returncode == 2
    assert "--size 2G" in ran.stderr
