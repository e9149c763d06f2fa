# SPDX-License-Identifier: MIT
"""`flagfinder core` on cores of loops around a call whose answer is not in the core."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import schemas
from harness import (
    assert_found,
    compiled,
    flagfinder,
    run,
    started,
    wait_until,
)

SOURCE = Path(__file__).parent / "programs" / "asks_again.c"
CLOSED = 777


def looked_at(way: str, tmp_path: Path) -> tuple[subprocess.CompletedProcess[str], str]:
    """What `core` says of the program once it has stopped itself, and what it wrote."""
    program = compiled(tmp_path / "asks_again", SOURCE, "-Wall", "-Werror")
    output = tmp_path / "stdout"
    with (
        output.open("wb") as stdout,
        started([program, way], stdin=subprocess.DEVNULL, stdout=stdout) as process,
    ):
        status = Path(f"/proc/{process.pid}/stat")
        wait_until(process, lambda: status.read_text().rsplit(")", 1)[1].split()[0] == "T")
        made = run(["gcore", "-o", tmp_path / "core", str(process.pid)], timeout=60)
        assert made.returncode == 0, made.stderr
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for child in children:
            os.kill(int(child), signal.SIGKILL)
    core = tmp_path / f"core.{process.pid}"
    return flagfinder("core", "--json", core, timeout=120), output.read_text()


def first_of(ran: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The first flag, which is no more than likely and says what is assumed."""
    assert_found(ran)
    report = json.loads(ran.stdout)
    schemas.validate(report)
    flag: dict[str, Any] = report["threads"][0]["flags"][0]
    assert flag["kind"] == "syscall", flag
    assert flag["confidence"] <= 0.4, flag
    assert flag["evidence"][0].startswith("assumed: that "), flag
    return flag


@pytest.mark.live
def test_a_poll_whose_array_is_made_anew(tmp_path: Path) -> None:
    ran, _ = looked_at("polls", tmp_path)
    flag = first_of(ran)
    assert flag["name"].startswith("poll"), flag
    assert [one["fd"] for one in flag["descriptors"]] == [CLOSED]


@pytest.mark.live
def test_an_answer_that_might_as_well_be_another_one_is_not_told(tmp_path: Path) -> None:
    """That nothing is there, and the end of data: both leave all as it is."""
    ran, output = looked_at("receives", tmp_path)
    flag = first_of(ran)
    assert flag["name"] == f"recvfrom on fd {output.split()[1]}", flag
    assert flag["call"]["result"] is None and "or something else" in flag["evidence"][0]


@pytest.mark.live
def test_a_child_that_is_asked_for_again_and_again(tmp_path: Path) -> None:
    ran, _ = looked_at("awaits", tmp_path)
    assert first_of(ran)["name"].startswith("wait4")


@pytest.mark.live
def test_of_a_thread_that_goes_on_by_what_it_reads_nothing_is_claimed(tmp_path: Path) -> None:
    ran, _ = looked_at("serves", tmp_path)
    thread = json.loads(ran.stdout)["threads"][0]
    assert all(flag["confidence"] <= 0.4 for flag in thread["flags"]), ran.stdout
    assert "makes progress" not in thread["reason"]
