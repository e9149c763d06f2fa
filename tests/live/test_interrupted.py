# SPDX-License-Identifier: MIT
"""Ctrl-C in the middle, as a terminal sends it: to the recorder and to its program."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest
from harness import FLAGFINDER, assert_consistent, assert_four_parts, diff, flagfinder, record

pytestmark = pytest.mark.live


def interrupted(
    words: list[str | Path], until: Path, cwd: Path
) -> subprocess.CompletedProcess[str]:
    """Interrupts that command of ours some seconds after the trace ``until`` has been begun."""
    process = subprocess.Popen(
        ["env", "--default-signal=INT", *FLAGFINDER, *words],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not until.exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(4)
    os.killpg(process.pid, signal.SIGINT)
    out, error = process.communicate(timeout=120)
    return subprocess.CompletedProcess(words, process.returncode, out, error)


@pytest.mark.usefixtures("tracer")
def test_diff_of_a_hang_that_was_ended_by_ctrl_c(samples: Path, tmp_path: Path) -> None:
    program = samples / "global_flag"
    normal = record(tmp_path / "normal.trace", [program, "normal"])
    hang = tmp_path / "spin.trace"
    ended = interrupted(["record", "-o", hang, "--", program, "spin"], hang, tmp_path)
    assert ended.returncode == 128 + signal.SIGINT, ended.stderr
    assert_consistent(hang)
    result = diff(normal.trace, hang)
    assert result["verdict"] == "data-flag", result["reason"]
    assert result["flags"][0]["symbol"] == "config_ready"


@pytest.mark.usefixtures("tracer")
def test_find_stops_at_ctrl_c(samples: Path, tmp_path: Path) -> None:
    command = shlex.join([str(samples / "global_flag"), "spin"])
    ended = interrupted(
        ["find", "--normal", command, "--spin", command], tmp_path / "normal.trace", tmp_path
    )
    assert ended.returncode == 130, ended.stderr
    assert not (tmp_path / "spin.trace").exists()


@pytest.mark.usefixtures("tracer")
def test_find_wants_a_good_run_that_ends_well(tmp_path: Path) -> None:
    ran = flagfinder("find", "--normal", "sh -c 'kill -9 $$'", "--spin", "true", cwd=tmp_path)
    assert ran.returncode == 2
    assert_four_parts(ran.stderr[ran.stderr.index("flagfinder: The good run") :], "SIGKILL")
    assert not (tmp_path / "spin.trace").exists()
