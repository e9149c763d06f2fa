# SPDX-License-Identifier: MIT
"""What a debugger as the backend does to the process: nothing that stays."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from harness import FLAGFINDER, assert_four_parts, flagfinder, live_or_skip, run
from watching import STARTED, Target, debug_registers, run_watched, target, values, watching

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]
ENABLED = 0xFF  # in dr7
each_debugger = pytest.mark.parametrize("debugger", ["lldb"])


def assert_left_alone(running: Target) -> None:
    """Nobody traces it, no thread has a debug register enabled, and it goes on to its end."""
    deadline = time.monotonic() + STARTED
    while True:
        tasks = [int(task.name) for task in Path(f"/proc/{running.pid}/task").iterdir()]
        status = [Path(f"/proc/{running.pid}/task/{task}/status").read_text() for task in tasks]
        if all("TracerPid:\t0" in text for text in status):
            break
        assert time.monotonic() < deadline, status
        time.sleep(0.05)
    # lldb leaves addresses behind; what counts is that none of the four is enabled.
    assert [debug_registers(task)[4] & ENABLED for task in tasks] == [0] * len(tasks)
    running.go()
    running.until("done")
    running.go()
    assert running.process.wait(timeout=STARTED) == 0


@each_debugger
def test_rounds_leave_the_process_as_it_was(writers: Path, debugger: str) -> None:
    """A thread spins on a word whose reads trap, while watches come and go."""
    with target(writers, "spin", "0") as running:
        running.go()
        for _ in range(3):
            words = ("writers", "word32", "--reads", "--backend", debugger)
            with watching(running.pid, *words) as watcher:
                assert watcher.process.stdout is not None
                first = json.loads(watcher.process.stdout.readline())
                watcher.stop()
                events, end = watcher.rest()
            assert watcher.exit_code == 130
            assert end["lost"]["total"] == 0
            assert {value for _, _, value in values([first, *events])} == {"0x0"}
        assert_left_alone(running)


@each_debugger
def test_a_killed_watch_leaves_the_process_as_it_was(writers: Path, debugger: str) -> None:
    with target(writers, "flags") as running:
        words = [word for index in range(4) for word in ("--expr", f"flags[{index}]")]
        for _ in range(2):
            with watching(running.pid, *words, "--backend", debugger) as watcher:
                watcher.process.send_signal(signal.SIGKILL)
                watcher.process.wait(timeout=30)
            time.sleep(0.5)
        assert_left_alone(running)


@each_debugger
def test_threads_that_block_signals_survive(writers: Path, debugger: str) -> None:
    with target(writers, "masked") as running:
        running.until("masked")
        with watching(running.pid, "writers", "word32", "--backend", debugger) as watcher:
            running.go()
            running.until("done")
            running.go()
            events, _ = watcher.rest()
        assert running.process.wait(timeout=STARTED) == 0
    assert values(events) == [("w", "0x0", "0x1"), ("w", "0x1", "0x2")]


def test_without_bpf_lldb_takes_over_and_it_is_said(writers: Path, tmp_path: Path) -> None:
    with target(writers, "sizes") as running:
        running.go()
        done = run(
            [
                *FLAGFINDER,
                "watch",
                str(running.pid),
                "writers",
                "word32",
                "--json-lines",
                "--duration",
                "0.2",
            ],
            timeout=60,
            env={"FF_CACHE_DIR": str(tmp_path), "FF_CLANG": "/nonexistent/clang"},
        )
    header = json.loads(done.stdout.splitlines()[0])
    assert header["backend"] == "lldb"
    assert "perf can't be used" in header["notes"][0]
    assert "watching with lldb instead" in done.stderr


@each_debugger
def test_what_a_debugger_can_t_do_is_said(writers: Path, debugger: str) -> None:
    with target(writers, "sizes") as running:
        refused = flagfinder(
            "watch", str(running.pid), "--site", "writers+0x1000", "--backend", debugger
        )
        assert refused.returncode == 2
        assert_four_parts(refused.stderr, debugger)
        with watching(running.pid, "writers", "word32", "--backend", "lldb"):
            refused = flagfinder(
                "watch", str(running.pid), "writers", "word64", "--backend", debugger
            )
            assert refused.returncode in (69, 77)
            assert_four_parts(refused.stderr, debugger)


def test_it_is_a_command_inside_lldb(writers: Path) -> None:
    asked = run(
        [
            sys.executable,
            "-P",
            "-c",
            "from flagfinder.shared.lldb_helper import *; print(find_lldb())",
        ],
        timeout=60,
    )
    lldb = asked.stdout.strip()
    if shutil.which(lldb) is None:
        live_or_skip("lldb is not installed")
    asked = run(
        [
            *(sys.executable, "-P", "-c"),
            "from flagfinder.shared.places import shipped; print(shipped('lldb_scripts', "
            "'flagfinder_lldb.py'))",
        ],
        timeout=60,
    )
    commands = [
        f"command script import {asked.stdout.strip()}",
        "flagfinder watch writers word32 --json-lines --until 2",
        "flagfinder watch writers nope",
        "detach",
    ]
    with target(writers, "sizes") as running:
        words = [word for line in commands for word in ("-o", line)]
        debugger = subprocess.Popen(
            [lldb, "--no-lldbinit", "--batch", "-p", str(running.pid), *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert debugger.stdout is not None
        said = []
        for line in debugger.stdout:
            said.append(line)
            if line.startswith('{"schema"'):
                running.go()
        debugger.wait(timeout=STARTED)
        running.until("done")
        running.go()
        assert running.process.wait(timeout=STARTED) == 0
    lines = [json.loads(line) for line in said if line.startswith('{"')]
    assert lines[0]["schema"] == "flagfinder.watch/1", said
    assert values(lines[1:-1]) == [("w", "0x0", "0x33333333"), ("w", "0x33333333", "0x73737373")]
    assert lines[-1]["reason"] == "until"
    assert "has no variable nope" in "".join(said)


@each_debugger
def test_a_thread_that_starts_later_is_watched(writers: Path, debugger: str) -> None:
    _, events, end = run_watched(
        writers, ["planted", "2", "3"], "writers", "word64", "--backend", debugger
    )
    assert end["hits"] == 6
    assert len({event["tid"] for event in events}) == 2
