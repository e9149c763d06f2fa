# SPDX-License-Identifier: MIT
"""What `record --tracer lldb --pid` must never do to its patient: kill it, change a result, leave a
trace of itself.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from answering import AnsweringProgram
from harness import (
    ROOT,
    assert_consistent,
    compiled,
    flagfinder,
    kill_session,
    live_or_skip,
    started,
)
from signal_state import states
from sizes import SOAK, rounds

from flagfinder.shared.lldb_helper import find_lldb

ROUNDS = rounds(usual=2, bar=10)
PARTS = 10 if SOAK else 1  # the bar is 100 rounds: ten parts of ten
SIGTRAP = 1 << 4  # the kernel takes it out of the mask of a thread that is stepped
PROGRAMS = ROOT / "tests" / "live" / "programs"

pytestmark = [pytest.mark.live, pytest.mark.timeout(120 + 60 * ROUNDS)]


class Patient(AnsweringProgram):
    """A program whose threads all make progress; ``count`` tells how far."""

    def count(self) -> list[int]:
        return [int(word) for word in self.answer_to("count").split()]

    def gets_on(self) -> None:
        """Returns once every count has grown."""
        before = self.count()
        while not all(now > then for now, then in zip(self.count(), before, strict=True)):
            pass

    def state(self) -> tuple[dict[str, dict[str, str]], str]:
        """Tracers, masks and dispositions of all threads; a digest of all code."""
        found = states(self.pid, pending=False)  # alarms come all the time
        for fields in found.values():
            fields["SigBlk:"] = f"{int(fields['SigBlk:'], 16) & ~SIGTRAP:x}"
        code = hashlib.sha256()
        with Path(f"/proc/{self.pid}/mem").open("rb") as memory:
            maps = Path(f"/proc/{self.pid}/maps").read_text()
            for start, end in re.findall(r"^(\w+)-(\w+) r-xp .* /", maps, re.MULTILINE):
                memory.seek(int(start, 16))
                code.update(memory.read(int(end, 16) - int(start, 16)))
        return found, code.hexdigest()

    def end(self) -> None:
        assert self.answer_to("end") == "0", "a result is not what it would have been"
        assert self.process.wait(timeout=60) == 0


@pytest.fixture(params=["c", "python"])
def patient(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Patient]:
    if find_lldb() is None:
        live_or_skip("there is no lldb")
    command: list[str | Path] = [sys.executable, PROGRAMS / "counting.py"]
    if request.param == "c":
        command = [compiled(tmp_path / "counting", PROGRAMS / "counting.c")]
    patient = Patient(command)
    try:
        yield patient
    finally:
        kill_session(patient.process)


@pytest.mark.parametrize("part", range(PARTS))
def test_rounds_leave_no_trace(patient: Patient, part: int, tmp_path: Path) -> None:  # noqa: ARG001
    patient.gets_on()
    before = patient.state()
    for _ in range(ROUNDS):
        trace = tmp_path / "part.trace"
        ran = flagfinder(
            *(
                "record",
                "--tracer",
                "lldb",
                "-o",
                trace,
                "--max-steps",
                "50",
                "--pid",
                str(patient.pid),
            ),
            timeout=120,
        )
        assert ran.returncode == 0, ran.stderr
        assert_consistent(trace)
        patient.gets_on()
        assert patient.state() == before, "something is left in the program"
    patient.end()


@pytest.mark.parametrize("kind", ["blocks", "ignores"])
def test_a_program_that_would_lose_its_handler_is_not_recorded(kind: str, tmp_path: Path) -> None:
    if find_lldb() is None:
        live_or_skip("there is no lldb")
    program = compiled(tmp_path / "traps", PROGRAMS / "traps.c")
    with started(
        [program, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as patient:
        assert patient.stdin is not None and patient.stdout is not None
        assert patient.stdout.readline() == "ready\n"

        def state() -> tuple[object, str]:
            assert patient.stdin is not None and patient.stdout is not None
            patient.stdin.write("state\n")
            return states(patient.pid), patient.stdout.readline()

        before = state()
        words = ["record", "--tracer", "lldb", "-o", tmp_path / "x.trace", "--max-steps", "50"]
        ran = flagfinder(*words, "--pid", patient.pid, timeout=120)
        assert ran.returncode != 0 and f"{kind} SIGTRAP" in ran.stderr, ran.stderr
        assert "fix:" in ran.stderr and state() == before
        patient.stdin.write("end\n")
        assert patient.stdout.readline().startswith("0 0 ")


def test_recording_ends_before_its_thread_blocks_it(tmp_path: Path) -> None:
    if find_lldb() is None:
        live_or_skip("there is no lldb")
    program = compiled(tmp_path / "traps", PROGRAMS / "traps.c")
    with started(
        [program, "sets", "open"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as patient:
        assert patient.stdin is not None and patient.stdout is not None
        assert patient.stdout.readline() == "ready\n"
        words = ["record", "--tracer", "lldb", "-o", tmp_path / "x.trace", "--max-steps", "5000"]
        worker = max(int(task.name) for task in Path(f"/proc/{patient.pid}/task").iterdir())
        flagfinder(*words, "--pid", patient.pid, "--thread", worker, timeout=120)
        patient.stdin.write("state\n")
        assert " 5:" in f" {patient.stdout.readline()}", "the handler is gone"
        patient.stdin.write("end\n")
        assert patient.stdout.readline().startswith("0 0 ")
