# SPDX-License-Identifier: MIT
"""`events record` lasts until all have ended that were asked for, and what they started."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from harness import FLAGFINDER, flagfinder, run, started

pytestmark = [pytest.mark.live, pytest.mark.timeout(120), pytest.mark.usefixtures("recorder")]


def info(path: Path) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(flagfinder("events", "info", "--json", path).stdout)
    return fields


def test_a_program_s_children_are_recorded_after_its_end(tmp_path: Path) -> None:
    """The second shell, which the daemon becomes, starts after the program has ended."""
    path = tmp_path / "run.events"
    script = '(sleep 0.7; exec sh -c "exit 5") & exit 3'
    ran = run([*FLAGFINDER, "events", "record", "-o", path, "--", "sh", "-c", script], timeout=60)
    assert ran.returncode == 3, ran.stderr
    assert "what it started is recorded" in ran.stderr
    lines = flagfinder("events", "dump", path).stdout.splitlines()
    ends = [line.split()[-1] for line in lines if " exit " in line]
    assert "0x300" in ends[:-1], "the program's end"
    assert ends[-1] == "0x500", "the daemon's end comes last"
    assert info(path)["end"]["reason"] == "program-ended"


def test_processes_children_are_recorded_after_their_end(tmp_path: Path) -> None:
    path, go = tmp_path / "run.events", tmp_path / "go"
    script = f'until [ -e "{go}" ]; do sleep 0.05; done; (sleep 0.7; exec sh -c "exit 5") & exit 0'
    with subprocess.Popen(["sh", "-c", script]) as shell:
        recorded_while(shell, path, go)
    lines = flagfinder("events", "dump", path).stdout.splitlines()
    assert [line for line in lines if line.endswith("status 0x500")]
    assert info(path)["end"]["reason"] == "target-ended"


def recorded_while(shell: subprocess.Popen[bytes], path: Path, go: Path) -> None:
    """Records a process that goes on once the file `go` is there, until it has ended."""
    command = [*FLAGFINDER, "events", "record", "-o", str(path), "--pid", str(shell.pid)]
    with subprocess.Popen(command) as recording:
        try:
            while not has_events(path) and recording.poll() is None:
                time.sleep(0.1)
            go.touch()
            assert recording.wait(timeout=60) == 0
        finally:
            recording.kill()
            go.touch()


def has_events(path: Path) -> bool:
    return path.exists() and bool(flagfinder("events", "dump", path).stdout)


def test_a_process_that_nobody_waits_for_has_ended(tmp_path: Path) -> None:
    path, go = tmp_path / "run.events", tmp_path / "go"
    with subprocess.Popen(["sh", "-c", f'until [ -e "{go}" ]; do sleep 0.05; done']) as shell:
        recorded_while(shell, path, go)
        is_left = os.WEXITED | os.WNOWAIT | os.WNOHANG
        assert os.waitid(os.P_PID, shell.pid, is_left), "its exit status is still there"
    assert info(path)["end"]["reason"] == "target-ended"


def test_a_process_beside_the_program_is_recorded_but_not_waited_for(tmp_path: Path) -> None:
    """A client that ends, and the server that it talks to, which goes on."""
    path, pipe = tmp_path / "run.events", tmp_path / "pipe"
    subprocess.run(["mkfifo", pipe], check=True)
    with started(["sh", "-c", f'while read line <"{pipe}"; do :; done; exec sleep 100']) as server:
        command = [*FLAGFINDER, "events", "record", "-o", path, "--pid", server.pid]
        ran = run([*command, "--", "sh", "-c", f'echo hello >"{pipe}"'], timeout=60)
        assert ran.returncode == 0, ran.stderr
        assert server.poll() is None
        fields = info(path)
        assert fields["end"]["reason"] == "program-ended"
        assert fields["pids"][1:] == [server.pid]
        assert f"process {server.pid}" in flagfinder("events", "info", path).stdout
        dumped = flagfinder("events", "dump", path, "--tid", server.pid).stdout
        assert f" waking {server.pid} by " in dumped
