# SPDX-License-Identifier: MIT
"""`mark`: into recordings that go on, and what `diagnose` makes of it."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from harness import children, command_into, flagfinder, started

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]


def socket_of(recorder: subprocess.Popen[Any]) -> Path:
    return Path(f"/run/flagfinder/{recorder.pid}.sock")


@pytest.mark.usefixtures("recorder")
def test_a_mark_chooses_the_moment_to_explain(tmp_path: Path) -> None:
    """Of two waits the first is marked, which is the shorter one: it ends with the mark, and the
    other lasts longer.
    """
    script = "import time\nprint('waits', flush=True)\ninput()\ntime.sleep(float(input()))"
    path = tmp_path / "run.events"
    command = [*command_into(path, "events record", "-q"), "--", "/usr/bin/python3", "-c", script]
    with started(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        began = time.monotonic()
        (program,) = children(process.pid)
        while not Path(f"/proc/{program}/syscall").read_text().startswith("0 "):
            time.sleep(0.01)
        ran = flagfinder("mark", "here <it> hung", "--recorder", str(process.pid), "--json")
        assert (ran.returncode, json.loads(ran.stdout)["recorders"]) == (0, [process.pid])
        process.stdin.write(f"\n{1 + 2 * (time.monotonic() - began)}\n")
        process.stdin.flush()
        assert process.wait(timeout=60) == 0
    assert not socket_of(process).exists()
    (mark,) = json.loads(flagfinder("events", "info", path, "--json").stdout)["marks"]
    assert mark["text"] == "here <it> hung"
    graph = tmp_path / "run.graph"
    assert flagfinder("graph", "build", path, "-o", graph).returncode == 0
    found = json.loads(flagfinder("diagnose", graph, "--auto", "--json").stdout)
    assert found["class"] == "LongWait"
    assert found["start"] <= mark["ts"] <= found["start"] + found["dur"]
    assert found["doing"].startswith("read")


@pytest.mark.usefixtures("recorder")
def test_a_hang_is_marked_while_it_lasts(tmp_path: Path) -> None:
    """Its event loop is left for longer than the limit once; to be idle for as long is no hang."""
    script = (
        "import select, time\nloop = select.poll()\nfor _ in range(5):\n    loop.poll(20)\n"
        "time.sleep(3)\nfor _ in range(2):\n    loop.poll(2000)"
    )
    path, graph = tmp_path / "run.events", tmp_path / "run.graph"
    options = ["--mark-on-hang", "1.5", "-q"]
    ran = flagfinder(
        "events", "record", "-o", path, *options, "--", "/usr/bin/python3", "-c", script
    )
    assert ran.returncode == 0, ran.stderr
    (mark,) = json.loads(flagfinder("events", "info", path, "--json").stdout)["marks"]
    assert "event wait" in mark["text"]
    assert flagfinder("graph", "build", path, "-o", graph).returncode == 0
    found = json.loads(flagfinder("diagnose", graph, "--auto", "--json").stdout)
    assert "nanosleep" in found["doing"]
    assert found["start"] < mark["ts"] < found["start"] + found["dur"]


def test_without_a_process_there_is_no_main_thread_to_watch(tmp_path: Path) -> None:
    ran = flagfinder("events", "record", "-o", tmp_path / "x", "--all", "--mark-on-hang", "1")
    assert ran.returncode == 2
    assert "main thread" in ran.stderr


@pytest.mark.usefixtures("recorder")
def test_a_recorder_that_was_killed_takes_no_marks(tmp_path: Path) -> None:
    command = [*command_into(tmp_path / "x", "events record", "-q"), "--", "/bin/sleep", "30"]
    with started(command) as process:
        deadline = time.monotonic() + 30
        while not socket_of(process).exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert flagfinder("mark", "too late", "--recorder", str(process.pid)).returncode == 1
    socket_of(process).unlink()


def test_an_empty_mark_is_a_usage_error() -> None:
    assert flagfinder("mark", "").returncode == 2
