# SPDX-License-Identifier: MIT
"""`events record` on programs whose wakes are known: who woke whom, from which context; losses;
damaged files.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest
from event_recorder import Recorder, wakes
from harness import FLAGFINDER, command_into, flagfinder, run

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]
ROUNDS = 10


@pytest.mark.parametrize(
    ("mode", "call", "context", "waker_call"),
    [
        ("mutex", "futex", "task", "futex"),
        ("eventfd", "read", "task", "write"),
        ("socketpair", "read", "task", "write"),
        ("loopback", "read", "softirq", "write"),
        ("signal", "pause", "task", "tgkill"),
    ],
)
def test_the_waker_is_recorded(
    recorder: Recorder, mode: str, call: str, context: str, waker_call: str
) -> None:
    recorded = recorder.record("wakes", mode)
    found = list(wakes(recorded, recorded.roles["waiter"], call))
    assert len(found) >= ROUNDS
    assert {(waker, seen) for waker, seen, _ in found} == {(recorded.roles["waker"], context)}
    # A thread that waits for the waker's end waits for a futex, too.
    assert waker_call in {by for _, _, by in found} <= {waker_call, "exit"}


def test_a_condition_wakes_by_its_signaller(recorder: Recorder) -> None:
    recorded = recorder.record("wakes", "condition")
    found = list(wakes(recorded, recorded.roles["waiter"], "futex"))
    assert len(found) >= ROUNDS
    assert {waker for waker, context, _ in found if context == "task"} == {recorded.roles["waker"]}


@pytest.mark.parametrize(
    ("mode", "call", "context"),
    [("timer", "read", "timer"), ("sleep", "clock_nanosleep", "timeout")],
)
def test_timers_are_no_thread_s_doing(
    recorder: Recorder, mode: str, call: str, context: str
) -> None:
    recorded = recorder.record("wakes", mode)
    found = list(wakes(recorded, recorded.roles["waiter"], call))
    assert len(found) >= ROUNDS
    assert {seen for _, seen, _ in found} == {context}


def test_a_chain_of_processes_is_followed(recorder: Recorder) -> None:
    recorded = recorder.record("wakes", "chain")
    names = ["first", "second", "third"]
    for name, before in zip(names, ["third", "first", "second"], strict=True):
        found = list(wakes(recorded, recorded.roles[name], "read"))
        assert len(found) >= ROUNDS
        assert {(waker, context) for waker, context, _ in found} == {
            (recorded.roles[before], "task")
        }


def test_a_recording_is_sound_complete_and_small(recorder: Recorder) -> None:
    recorded = recorder.record("wakes", "chain", options=("--all", "--syscalls", "target"))
    checked = flagfinder("events", "check", recorded.path)
    assert checked.returncode == 0, checked.stdout
    summary = json.loads(flagfinder("events", "info", "--json", recorded.path).stdout)
    assert summary["schema"] == "flagfinder.events-info/1"
    assert summary["contexts"]
    assert summary["lost"] == {}
    assert summary["end"]["exit_status"] == 0
    assert summary["end"]["raw_bytes"] <= 40 * summary["end"]["events"]
    # Each process of the chain reads and writes once a round, and the first sleeps.
    assert summary["events"]["enter"] >= 7 * ROUNDS
    assert "unknown" not in summary["wakes"]


def test_stacks_are_taken_where_threads_block(recorder: Recorder) -> None:
    recorded = recorder.record("wakes", "mutex", options=("--stacks", "all"))
    summary = json.loads(flagfinder("events", "info", "--json", recorded.path).stdout)
    assert summary["different_stacks"] > 0
    assert flagfinder("events", "check", recorded.path).returncode == 0


def test_the_program_s_exit_status_is_passed_on(recorder: Recorder, tmp_path: Path) -> None:
    ran = run(
        [*command_into(tmp_path / "x", "events record"), "--", recorder.program("wakes"), "?"],
        timeout=60,
    )
    assert ran.returncode == 2
    assert "the program ended" in ran.stderr


def test_a_program_of_the_folder_runs_under_the_name_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "named").write_text("#!/bin/sh\necho $0\n")
    (tmp_path / "named").chmod(0o755)
    command = [*FLAGFINDER, "events", "record", "-o", "x.events", "--", "./named"]
    done = run(command, cwd=tmp_path, timeout=60)
    assert (done.returncode, done.stdout) == (0, "./named\n"), done.stderr


@pytest.mark.usefixtures("recorder")
def test_loss_is_counted_and_marked(tmp_path: Path) -> None:
    """A ring of 64 KiB can't hold what a busy program does while the consumer naps."""
    path = tmp_path / "lossy.events"
    script = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); [ -e / ]; done"
    options = ["--syscalls", "target", "--buffer", "64K", "--json"]
    command = ["events", "record", "-o", path, *options, "--", "/bin/sh", "-c", script]
    ran = run([*FLAGFINDER, *command], timeout=60)
    lost = json.loads(ran.stdout)["lost"]
    assert lost["total"] > 0
    summary = json.loads(flagfinder("events", "info", "--json", path).stdout)
    assert sum(summary["lost"].values()) == lost["total"] == sum(lost["cpus"].values())
    assert flagfinder("events", "check", path).returncode == 0


@pytest.fixture(scope="module")
def whole(recorder: Recorder) -> bytes:
    return recorder.record("wakes", "sleep").path.read_bytes()


@pytest.mark.parametrize("length", [0, 5, 40, 64])
def test_files_cut_in_their_beginning_are_refused(
    whole: bytes, tmp_path: Path, length: int
) -> None:
    (tmp_path / "cut").write_bytes(whole[:length])
    ran = flagfinder("events", "info", tmp_path / "cut")
    assert ran.returncode == 65
    assert "fix:" in ran.stderr


def test_foreign_and_newer_files_are_refused(whole: bytes, tmp_path: Path) -> None:
    (tmp_path / "foreign").write_bytes(b"#!/bin/sh\n" * 20)
    newer = int.from_bytes(whole[8:12], "little") + 1
    (tmp_path / "newer").write_bytes(whole[:12] + newer.to_bytes(4, "little") + whole[16:])
    for name, words in (("foreign", "instead of"), ("newer", "Upgrade")):
        ran = flagfinder("events", "info", tmp_path / name)
        assert ran.returncode == 65
        assert words in ran.stderr


def test_a_cut_file_is_read_up_to_its_last_whole_block(whole: bytes, tmp_path: Path) -> None:
    (tmp_path / "cut").write_bytes(whole[:-20])
    assert flagfinder("events", "info", tmp_path / "cut").returncode == 0
    checked = flagfinder("events", "check", tmp_path / "cut")
    assert checked.returncode == 65
    assert "recorder was killed" in checked.stdout


def test_damage_is_found_wherever_it_is(whole: bytes, tmp_path: Path) -> None:
    for place in range(64, len(whole), max(1, len(whole) // 12)):
        damaged = bytearray(whole)
        damaged[place] ^= 0x55
        (tmp_path / "damaged").write_bytes(damaged)
        assert flagfinder("events", "check", tmp_path / "damaged").returncode == 65, f"byte {place}"


def test_nothing_to_record_is_a_usage_error(tmp_path: Path) -> None:
    assert flagfinder("events", "record", "-o", tmp_path / "x").returncode == 2
    ran = flagfinder("events", "record", "-o", tmp_path / "x", "--pid", "4194305")
    assert ran.returncode == 2
    assert "no such process" in ran.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_recording_in_the_background_ends_at_a_signal(
    number: signal.Signals, tmp_path: Path
) -> None:
    """Shells start background commands of a script with SIGINT ignored."""
    path = tmp_path / "run.events"
    ignoring = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]
    command = [*ignoring, *FLAGFINDER, "events", "record", "--json", "-o", str(path), "--all"]
    recording = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        while not path.exists() and recording.poll() is None:
            time.sleep(0.05)
        time.sleep(1)
        recording.send_signal(number)
        printed, _ = recording.communicate(timeout=60)
    finally:
        recording.kill()
    assert recording.returncode == 130
    assert json.loads(printed)["ended"] == "interrupted"
    assert flagfinder("events", "check", path).returncode == 0
