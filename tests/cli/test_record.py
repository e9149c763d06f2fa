# SPDX-License-Identifier: MIT
"""``record`` passes on what the program does and says what it kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from harness import FLAGFINDER, assert_four_parts, flagfinder, needs_root, run, started

from .conftest import Pair

pytestmark = pytest.mark.usefixtures("tracer")


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137), ("kill -TERM $$", 143)]
)
def test_exit_status_is_the_programs(tmp_path: Path, script: str, code: int) -> None:
    done = flagfinder("record", "-o", tmp_path / "x.trace", "--", "sh", "-c", script)
    assert done.returncode == code, done.stderr
    assert flagfinder("trace", "check", tmp_path / "x.trace").returncode == 0


def test_stdout_and_stderr_are_the_programs(tmp_path: Path) -> None:
    done = flagfinder(
        "record", "-q", "-o", tmp_path / "x.trace", "--", "sh", "-c", "echo out; echo err >&2"
    )
    assert (done.stdout, done.stderr) == ("out\n", "err\n")


def test_signals_are_ignored_as_without(tmp_path: Path) -> None:
    """Python ignores some for itself, which are not for the program; what it is told others see."""
    words = ["env", "--ignore-signal=USR1", "grep", "SigIgn", "/proc/self/status"]
    done = flagfinder("record", "-q", "-o", tmp_path / "x.trace", "--", *words)
    assert done.stdout == run(words, timeout=20).stdout, done.stderr


def test_words_behind_the_dashes_are_the_programs(tmp_path: Path) -> None:
    done = flagfinder(
        "record", "-q", "-o", tmp_path / "x.trace", "--", "echo", "--json", "--", "--debug"
    )
    assert done.stdout == "--json -- --debug\n"


def test_json_of_a_recording(tmp_path: Path) -> None:
    done = flagfinder("record", "--json", "-o", tmp_path / "x.trace", "--", "true")
    answer = json.loads(done.stdout)
    assert answer["schema"] == "flagfinder.record/1"
    assert (answer["ended"], answer["status"], answer["signal"]) == ("target-ended", 0, None)
    assert answer["lost_flow_bytes"] == 0


def test_the_last_line_is_the_next_command(tmp_path: Path) -> None:
    done = flagfinder("record", "-o", tmp_path / "x.trace", "--", "true")
    assert done.stderr.splitlines()[-1].startswith("Next: flagfinder record -o spin.trace")


def test_a_crash_may_be_the_tracers(tmp_path: Path) -> None:
    done = flagfinder("record", "-o", tmp_path / "x.trace", "--", "sh", "-c", "kill -BUS $$")
    assert done.returncode == 128 + signal.SIGBUS
    assert "SIGBUS" in done.stderr and "flagfinder spin PID" in done.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--", "no-such-program-anywhere"], 2),
        (["--", "/"], 2),
        (["--"], 2),
        ([], 2),
    ],
)
def test_programs_that_cannot_run(tmp_path: Path, words: list[str], code: int) -> None:
    done = flagfinder("record", "-o", tmp_path / "x.trace", *words)
    assert done.returncode == code
    assert "found:" in done.stderr and "fix:" in done.stderr
    assert not (tmp_path / "x.trace").exists()


def test_a_file_that_may_not_run(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("hello")
    done = flagfinder("record", "-o", tmp_path / "x.trace", "--", plain)
    assert done.returncode == 77
    assert "chmod" in done.stderr


def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    done = flagfinder("record", "-o", tmp_path / "missing" / "x.trace", "--", "true")
    assert done.returncode == 2
    assert "mkdir" in done.stderr


def test_ctrl_c_keeps_the_trace(tmp_path: Path, pair: Pair) -> None:
    trace = tmp_path / "x.trace"
    # The tests may run with SIGINT ignored, as a shell's background jobs do, and programs inherit
    # that.
    attentive = ["env", "--default-signal=INT"]
    with subprocess.Popen(
        [*attentive, *FLAGFINDER, "record", "-o", trace, "--", pair.program, "spin"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as recorder:
        time.sleep(2)
        os.killpg(recorder.pid, signal.SIGINT)
        _, stderr = recorder.communicate(timeout=60)
    assert recorder.returncode == 130, stderr
    assert flagfinder("trace", "check", trace).returncode == 0


@pytest.mark.parametrize(("then", "is_left"), [("leave", True), ("kill", False)])
def test_then_is_about_ctrl_c_too(then: str, is_left: bool, tmp_path: Path, pair: Pair) -> None:
    """The second Ctrl-C ends the recording of a program that ignores the first, so --then needs no
    --stop.
    """
    trace, number = tmp_path / "x.trace", tmp_path / "pid"
    program = f"trap '' INT; echo $$ >{number}; exec {pair.program} spin"
    words = ["record", "-q", "-o", str(trace), "--then", then, "--", "sh", "-c", program]
    with started(["env", "--default-signal=INT", *FLAGFINDER, *words]) as recorder:
        until = time.monotonic() + 60
        while not number.exists() or "waiter" not in comm(int(number.read_text() or 0)):
            assert time.monotonic() < until
            time.sleep(0.1)
        for _ in range(2):
            time.sleep(2)
            recorder.send_signal(signal.SIGINT)
        recorder.wait(timeout=60)
        assert (comm(int(number.read_text())) != "") == is_left


def comm(pid: int) -> str:
    """The name of a process's program; empty when there is none."""
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""


def test_killing_the_recorder_keeps_what_was_written(tmp_path: Path, pair: Pair) -> None:
    trace = tmp_path / "x.trace"
    with subprocess.Popen(
        [*FLAGFINDER, "record", "-q", "-o", trace, "--", pair.program, "spin"],
        start_new_session=True,
    ) as recorder:
        time.sleep(3)
        recorder.kill()
        recorder.wait(timeout=30)
        os.killpg(recorder.pid, signal.SIGKILL)  # the program outlives its recorder
    info = flagfinder("trace", "info", trace)
    assert info.returncode == 0, info.stderr
    assert "not closed in order" in info.stdout


def test_a_tracer_that_corrupts_programs_is_refused(tmp_path: Path) -> None:
    """A launcher that runs the program with another environment stands for a broken tracer."""
    tracer = tmp_path / "tracer"
    tracer.mkdir()
    launcher = tracer / "ff_launch"
    launcher.write_text(
        '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nFF_CORRUPTED=1 exec "$@"\n'
    )
    canary = tracer / "ff_canary"
    canary.write_text('#!/bin/sh\nenv >"$1"\n')
    for program in (launcher, canary):
        program.chmod(0o755)
    environment = {
        **os.environ,
        "FF_TRACER_DIR": str(tracer),
        "FF_CACHE_DIR": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        [*FLAGFINDER, "record", "-o", tmp_path / "x.trace", "--", "true"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 69, done.stderr
    assert not (tmp_path / "x.trace").exists()


@needs_root("only root is called by sudo")
@pytest.mark.usefixtures("tracer")
def test_a_set_user_id_program_is_refused_and_the_advice_works(tmp_path: Path) -> None:
    """Under sudo it runs as the caller, who would gain root's rights by it; as root, for root, it
    gains nothing.
    """
    words = ["record", "-q", "-o", str(tmp_path / "x.trace"), "--", "/usr/bin/passwd", "-S", "root"]
    refused = run(["env", "SUDO_UID=65534", *FLAGFINDER, *words], timeout=60)
    assert refused.returncode == 77
    assert_four_parts(refused.stderr, "/usr/bin/passwd gains privileges")
    assert not (tmp_path / "x.trace").exists()
    advice = refused.stderr.split("for root: sudo ")[1].split(" flagfinder")[0]
    done = run(["env", "SUDO_UID=65534", *advice.split(), *FLAGFINDER, *words], timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("root ")
