# SPDX-License-Identifier: MIT
"""A recorder that gets no CPU for 5 s while its program works on: what is lost is counted, the
graph has the gap.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from harness import children, command_into, flagfinder, started

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]
STALLED = 5.0  # seconds
# Calls all the time: the ring is full in a fraction of a second.
SCRIPT = "import os\nprint('begun', flush=True)\nwhile True:\n    os.getppid()"


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[0]


def wait_for_state(pid: int, state: str) -> None:
    deadline = time.monotonic() + 30
    while state_of(pid) != state:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.usefixtures("recorder")
def test_what_a_stalled_recorder_loses_is_counted_and_a_gap_in_the_graph(tmp_path: Path) -> None:
    path, graph = tmp_path / "stalled.events", tmp_path / "stalled.graph"
    summary_file = tmp_path / "summary.json"
    options = ["--syscalls", "target", "--buffer", "1M", "--json-file", str(summary_file)]
    command = [
        *command_into(path, "events record", *options),
        "--",
        "/usr/bin/python3",
        "-c",
        SCRIPT,
    ]
    with started(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        (program,) = children(process.pid)
        process.send_signal(signal.SIGSTOP)
        wait_for_state(process.pid, "T")
        began = time.monotonic_ns()
        time.sleep(STALLED)
        ended = time.monotonic_ns()
        process.send_signal(signal.SIGCONT)
        written = path.stat().st_size
        deadline = time.monotonic() + 60
        while path.stat().st_size == written and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(program, signal.SIGKILL)
        process.communicate(timeout=60)
    lost = json.loads(summary_file.read_text())["lost"]
    assert lost["total"] > 0
    summary = json.loads(flagfinder("events", "info", "--json", path).stdout)
    assert sum(summary["lost"].values()) == lost["total"] == sum(lost["cpus"].values())
    assert flagfinder("events", "check", path).returncode == 0
    assert flagfinder("graph", "build", path, "-o", graph).returncode == 0
    shown = json.loads(flagfinder("graph", "info", "--json", graph).stdout)
    assert shown["lost"] == lost["total"]
    # It starts once the ring is full, and lasts until the recorder goes on.
    middle = (began + ended) // 2
    assert any(gap["since"] < middle < ended <= gap["until"] for gap in shown["gaps"]), shown[
        "gaps"
    ]
