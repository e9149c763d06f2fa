# SPDX-License-Identifier: MIT
"""Full disks, closed terminals and wrong files: the program lives, and what is left is whole."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest
from event_recorder import Recorder
from harness import FLAGFINDER, command_into, flagfinder, run
from test_diagnose import build

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]


def full_after(size: int) -> list[str]:
    """Begins a command whose files can't grow beyond so many bytes."""
    return ["prlimit", f"--fsize={size}"]


@pytest.mark.usefixtures("recorder")
def test_a_full_disk_ends_the_recording_but_not_the_program(tmp_path: Path) -> None:
    script = "i=0; while [ $i -lt 40000 ]; do i=$((i+1)); [ -e / ]; done; sleep 2; echo the end"
    path = tmp_path / "run.events"
    record = [
        *command_into(path, "events record", "--syscalls", "target"),
        "--",
        "/bin/sh",
        "-c",
        script,
    ]
    ran = run([*full_after(20_000), *record], timeout=90)
    assert ran.returncode == 2
    assert "can't be written any further" in ran.stderr
    assert "The program goes on unrecorded" in ran.stderr
    assert ran.stdout == "the end\n"
    assert flagfinder("events", "info", path).returncode == 0


@pytest.mark.usefixtures("recorder")
def test_a_closed_terminal_ends_the_recording_in_order(tmp_path: Path) -> None:
    path = tmp_path / "run.events"
    command = [
        *command_into(path, "events record", "-q"),
        "--",
        "/bin/sh",
        "-c",
        "echo on; exec sleep 20",
    ]
    with subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.PIPE, text=True
    ) as recording:
        assert recording.stdout is not None
        assert recording.stdout.readline() == "on\n"
        recording.send_signal(signal.SIGHUP)
        assert recording.wait(timeout=30) == 130
    info = json.loads(flagfinder("events", "info", path, "--json").stdout)
    assert info["end"]["reason"] == "interrupted"
    subprocess.run(["kill", str(info["pids"][0])], check=True)  # it did not have the signal


def test_what_can_t_be_written_whole_is_not_left_behind(recorder: Recorder, tmp_path: Path) -> None:
    recorded = recorder.record("hangs", "alone")
    graph = build(recorded)
    for output, command in (
        (tmp_path / "x.graph", ["graph", "build", recorded.path, "-o"]),
        (tmp_path / "x.html", ["report", graph, "-o"]),
        (tmp_path / "x.perfetto-trace", ["graph", "export", graph, "-o"]),
    ):
        ran = run([*full_after(100), *FLAGFINDER, *command, output], timeout=60)
        assert ran.returncode == 2, ran.stderr
        assert not output.exists()


def test_a_file_without_flags_is_refused(recorder: Recorder, tmp_path: Path) -> None:
    recorded = recorder.record("hangs", "alone")
    graph = tmp_path / "x.graph"
    for text in (
        "<html>",
        "{}",
        "not a record\n" * 3,
        '{"schema": "flagfinder.watch/1", "watches": [], "events": []}',
    ):
        (tmp_path / "flags").write_text(text)
        ran = flagfinder(
            "graph", "build", recorded.path, "-o", graph, "--flags", tmp_path / "flags"
        )
        assert ran.returncode == 65
        assert "holds no records of flags" in ran.stderr
    assert not graph.exists()
    # A watch that saw nothing.
    (tmp_path / "flags").write_text(
        '{"schema": "flagfinder.watch/1", "watches": []}\n{"event": "end"}\n'
    )
    assert (
        flagfinder(
            "graph", "build", recorded.path, "-o", graph, "--flags", tmp_path / "flags"
        ).returncode
        == 0
    )
