# SPDX-License-Identifier: MIT
"""A recording that ends when the program prints a text, or when a mark asks for it; and answers
about one thread.
"""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from harness import (
    FLAGFINDER,
    ROOT,
    assert_consistent,
    assert_four_parts,
    command_into,
    compiled,
    flagfinder,
    kill_session,
    record,
    started,
)

import flagfinder as ff

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("tracer")]

SOURCE = ROOT / "tests" / "live" / "programs" / "two_waits.c"
# Prints the text in two pieces, on stderr, and would go on for long.
PRINTS = "echo out; printf REA >&2; sleep 0.3; printf 'DY\\n' >&2; while :; do sleep 1; done"


@pytest.mark.parametrize("stream", ["1", "2"])
def test_the_text_ends_it_and_passes_unchanged(stream: str, tmp_path: Path) -> None:
    trace = tmp_path / "x.trace"
    script = PRINTS.replace(">&2", f">&{stream}")
    done = record(trace, ["sh", "-c", script], "--until", "READY", kill_after=60)
    assert done.ended_by_itself and done.exit_code == 0, done.stderr
    out, said = (done.stdout, done.stderr) if stream == "1" else (done.stderr, done.stdout)
    assert "READY\n" in out
    assert "READY\n" not in said
    assert "the program printed 'READY', recording ended" in done.stderr
    assert_consistent(trace)


def test_a_text_that_never_comes_ends_nothing(tmp_path: Path) -> None:
    done = record(
        tmp_path / "x.trace", ["sh", "-c", "printf 'REA DY\\n'; exit 3"], "--until", "READY"
    )
    assert (done.exit_code, done.stdout) == (3, "REA DY\n"), done.stderr


def test_much_output_passes_whole(tmp_path: Path) -> None:
    done = record(tmp_path / "x.trace", ["seq", "200000"], "--until", "never")
    assert done.exit_code == 0, done.stderr
    assert done.stdout == "".join(f"{number}\n" for number in range(1, 200001))


def test_the_program_keeps_a_terminal(tmp_path: Path) -> None:
    """What the recorder has as a terminal the program has as one, too; lines end as the terminal
    ends them, once.
    """
    script = "test -t 1 && test -t 2 && echo yes; stty size <&1; echo READY; sleep 60"
    words = [
        *command_into(tmp_path / "x.trace", "record", "-q", "--until", "READY"),
        "--",
        "sh",
        "-c",
        script,
    ]
    ours, theirs = pty.openpty()
    recorder = subprocess.Popen(
        words, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    try:
        assert recorder.wait(timeout=60) == 0
        said = os.read(ours, 1 << 16).decode()
    finally:
        kill_session(recorder)
        os.close(ours)
    assert "yes\r\n" in said and "READY\r\n" in said and "\r\r\n" not in said


def test_a_program_that_is_left_prints_on(tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = "echo READY; sleep 2; echo after; sleep 60"
    words = ["record", "-q", "-o", str(tmp_path / "x.trace"), "--until", "READY", "--then", "leave"]
    with (
        out.open("wb") as stdout,
        started(
            [*FLAGFINDER, *words, "--", "sh", "-c", script],
            stdout=stdout,
            stderr=stdout,
        ) as recorder,
    ):
        assert recorder.wait(timeout=60) == 0
        until = time.monotonic() + 30
        while "after" not in out.read_text():
            assert time.monotonic() < until, out.read_text()
            time.sleep(0.1)
    assert out.read_text() == "READY\nafter\n"


def test_a_mark_ends_it(tmp_path: Path) -> None:
    trace = tmp_path / "x.trace"
    words = [
        *command_into(trace, "record", "--json"),
        "--",
        "sh",
        "-c",
        "while :; do sleep 0.1; done",
    ]
    with started(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as recorder:
        until = time.monotonic() + 60
        while (
            flagfinder("mark", "--end", "it hangs", "--recorder", str(recorder.pid)).returncode != 0
        ):
            assert time.monotonic() < until
            time.sleep(0.2)
        stdout, stderr = recorder.communicate(timeout=60)
    answer = json.loads(stdout)
    assert (answer["ended"], answer["ended_by"], answer["exit_code"]) == (
        "marked",
        "it hangs",
        0,
    ), stderr
    assert answer["signal"] == signal.SIGKILL


def test_a_mark_of_events_ends_nothing(tmp_path: Path) -> None:
    words = [*FLAGFINDER, "record", "-q", "-o", str(tmp_path / "x.trace"), "--", "sleep", "5"]
    with started(words) as recorder:
        time.sleep(2)
        assert flagfinder("mark", "here", "--recorder", str(recorder.pid)).returncode == 1
        assert recorder.wait(timeout=60) == 0


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, tracer: None) -> tuple[Path, Path]:  # noqa: ARG001
    """Recordings of the program with two threads that wait."""
    folder = tmp_path_factory.mktemp("two_waits")
    compiled(folder / "two_waits", SOURCE)
    normal = record(folder / "normal.trace", [folder / "two_waits", "normal"])
    spin = record(
        folder / "spin.trace",
        [folder / "two_waits", "spin"],
        "--stop-when-spinning",
        "1",
        kill_after=60,
    )
    assert normal.exit_code == 0 and spin.ended_by_itself, spin.stderr
    return normal.trace, spin.trace


def answer_about(pair: tuple[Path, Path], tid: int) -> dict[str, Any]:
    done = flagfinder("diff", "--json", *pair, "--thread", str(tid))
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_the_answer_is_about_the_thread_that_is_named(pair: tuple[Path, Path]) -> None:
    main, *waiting = sorted(thread.tid for thread in ff.open_trace(pair[1]).threads)
    answers = [answer_about(pair, tid) for tid in waiting]
    assert [answer["threads"]["spin"]["tid"] for answer in answers] == waiting
    assert [answer["flags"][0]["symbol"] for answer in answers] == ["first_word", "second_word"]
    assert flagfinder("diff", *pair, "--thread", str(main)).returncode == 1


def test_an_unknown_thread_is_refused(pair: tuple[Path, Path]) -> None:
    tids = [thread.tid for thread in ff.open_trace(pair[1]).threads]
    done = flagfinder("diff", *pair, "--thread", "1")
    assert done.returncode == 2
    assert_four_parts(done.stderr, "There is no thread 1")
    assert all(str(tid) in done.stderr for tid in tids)
