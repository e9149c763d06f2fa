# SPDX-License-Identifier: MIT
"""`flagfinder spin` on the real programs that spin, running free. The bar is 5 of 5."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import driver
import pytest
import truth
from harness import (
    assert_found,
    flagfinder,
    kill_session,
    run,
    wait_for_rounds,
    wait_until,
)

# A core has of CPython a thread that may be about to hand its lock over.
NOT_IN_A_CORE = ("python_attribute",)
HANGS = 1.5  # seconds until the thread that answers a client has come to where it hangs


def has_read_all(process: subprocess.Popen[bytes]) -> bool:
    """Whether nothing is left of what the program was fed."""
    standard_input = os.open(f"/proc/{process.pid}/fd/0", os.O_RDONLY | os.O_NONBLOCK)
    try:
        left = fcntl.ioctl(standard_input, termios.FIONREAD, bytes(4))
    finally:
        os.close(standard_input)
    return int.from_bytes(left, sys.byteorder) == 0


@contextlib.contextmanager
def spinning(
    source: Path, expect: dict[str, Any], variant: str, work: Path, stderr: BinaryIO
) -> Iterator[subprocess.Popen[bytes]]:
    command = truth.build(source, expect, variant, work)
    if expect.get("driver") == "haproxy":
        with driver.serving([], source, work / "run", stderr=stderr) as server:
            server.hang()
            time.sleep(HANGS)
            yield server.process
        return
    env = expect.get("environment", {})
    with driver.feeding(command, expect["spin"], True, work, env, stderr=stderr) as process:
        try:
            wait_until(process, lambda: has_read_all(process))
            wait_for_rounds(process)
            yield process
        finally:
            kill_session(process)


@pytest.mark.live
@pytest.mark.parametrize(("source", "variant"), truth.all_cases(usual=0, turn=1))
def test_true_flag_is_first(source: Path, variant: str, tmp_path: Path) -> None:
    expect = json.loads((source / "expect.json").read_text())
    written = tmp_path / "stderr"
    with (
        written.open("wb") as stderr,
        spinning(source, expect, variant, tmp_path, stderr) as process,
    ):
        assert process.poll() is None, "spin mode ended"
        ran = flagfinder("spin", "--json", str(process.pid), timeout=60)
        assert process.poll() is None, "the program did not survive"
    assert_found(ran)
    thread = json.loads(ran.stdout)["threads"][0]
    assert thread["class"] == "RepeatedYield"
    truth.assert_true_flag(thread["flags"], expect["flag"], written.read_text(), tmp_path)
    if "owed" in expect:
        flag = thread["flags"][0]
        owed = flag["owed"][0] if flag["owed"] else {}
        assert owed.get("known") == expect["owed"], flag["owed_by_nobody"]
        assert owed["tid"] != thread["tid"]


@pytest.mark.soak
@pytest.mark.live
@pytest.mark.parametrize(("source", "variant"), truth.all_cases(usual=0, turn=1))
def test_a_core_has_the_same_flag(source: Path, variant: str, tmp_path: Path) -> None:
    expect = json.loads((source / "expect.json").read_text())
    written = tmp_path / "stderr"
    with (
        written.open("wb") as stderr,
        spinning(source, expect, variant, tmp_path, stderr) as process,
    ):
        made = run(["gcore", "-o", tmp_path / "core", str(process.pid)], timeout=120)
        assert made.returncode == 0, made.stderr
    ran = flagfinder("core", "--json", str(tmp_path / f"core.{process.pid}"), timeout=120)
    threads = json.loads(ran.stdout)["threads"]
    if expect["flag"]["kind"] == "syscall" or source.name in NOT_IN_A_CORE:
        sure = [flag for one in threads for flag in one["flags"] if flag["confidence"] >= 0.5]
        if sure and expect["flag"]["kind"] != "syscall":
            truth.assert_true_flag(sure, expect["flag"], written.read_text(), tmp_path)
        else:
            assert not sure, "what the core does not hold is not made up for"
        return
    assert_found(ran)
    truth.assert_true_flag(threads[0]["flags"], expect["flag"], written.read_text(), tmp_path)
