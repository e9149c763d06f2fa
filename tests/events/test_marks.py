"""`mark`: into recordings that go on, and what `diagnose` makes of it."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest
from harness import FLAGFINDER, flagfinder, kill_session

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]


def sockets() -> set[Path]:
    return set(Path("/run/flagfinder").glob("*.sock"))


@pytest.mark.usefixtures("recorder")
def test_a_mark_chooses_the_moment_to_explain(tmp_path: Path) -> None:
    """Of two waits the shorter one is marked. The program says when it begins by a line on stdout."""
    script = "import time\nfor s in (3.0, 2.0):\n    print(s, flush=True)\n    time.sleep(s)"
    path, before = tmp_path / "run.events", sockets()
    command = [*FLAGFINDER, "events", "record", "-q", "-o", str(path), "--", "/usr/bin/python3", "-c", script]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["3.0\n", "2.0\n"]
        time.sleep(0.1)
        (socket,) = sockets() - before
        ran = flagfinder("mark", "here <it> hung", "--recorder", socket.stem, "--json")
        assert (ran.returncode, json.loads(ran.stdout)["recorders"]) == (0, [process.pid])
        assert process.wait(timeout=60) == 0
    finally:
        kill_session(process)
    assert not socket.exists()
    (mark,) = json.loads(flagfinder("events", "info", path, "--json").stdout)["marks"]
    assert mark["text"] == "here <it> hung"
    graph = tmp_path / "run.graph"
    assert flagfinder("graph", "build", path, "-o", graph).returncode == 0
    found = json.loads(flagfinder("diagnose", graph, "--auto", "--json").stdout)
    assert found["class"] == "LongWait"
    assert found["start"] <= mark["ts"] <= found["start"] + found["dur"]
    assert 1_900_000_000 < found["dur"] < 2_900_000_000


@pytest.mark.usefixtures("recorder")
def test_a_hang_is_marked_while_it_lasts(tmp_path: Path) -> None:
    """Its event loop is left for longer than the limit once; to be idle for as long is no hang."""
    script = (
        "import select, time\nloop = select.poll()\nfor _ in range(5):\n    loop.poll(20)\n"
        "time.sleep(3)\nfor _ in range(2):\n    loop.poll(2000)"
    )
    path, graph = tmp_path / "run.events", tmp_path / "run.graph"
    options = ["--mark-on-hang", "1.5", "-q"]
    ran = flagfinder("events", "record", "-o", path, *options, "--", "/usr/bin/python3", "-c", script)
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
    before = sockets()
    command = [*FLAGFINDER, "events", "record", "-q", "-o", str(tmp_path / "x"), "--", "/bin/sleep", "30"]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        deadline = time.monotonic() + 30
        while sockets() == before and time.monotonic() < deadline:
            time.sleep(0.05)
        (socket,) = sockets() - before
    finally:
        kill_session(process)
    assert flagfinder("mark", "too late", "--recorder", socket.stem).returncode == 1
    socket.unlink()


def test_an_empty_mark_is_a_usage_error() -> None:
    assert flagfinder("mark", "").returncode == 2
