# SPDX-License-Identifier: MIT
"""A step ends with a SIGTRAP. What a program does with that signal itself must stay as it is."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from answering import AnsweringProgram
from harness import FLAGFINDER, compiled, flagfinder, kill_session
from signal_state import is_traced, states
from sizes import rounds

import flagfinder as api

LOOKS = rounds(usual=3, bar=50)
PROGRAMS = Path(__file__).with_name("programs")
State = tuple[dict[str, dict[str, str]], str]
pytestmark = [pytest.mark.live, pytest.mark.timeout(60 + 20 * LOOKS)]


class Patient(AnsweringProgram):
    """The program ``traps.c``."""

    def __init__(self, program: Path, kind: str) -> None:
        super().__init__([program, kind])
        # Signals that arrive all the time wait now and then; so do those of its own faults.
        self._often = kind in ("waits", "handles")

    def worker(self) -> int:
        return max(map(int, os.listdir(f"/proc/{self.pid}/task")))  # noqa: PTH208 (only names)

    def state(self) -> State:
        """Masks, dispositions and waiting signals; what its handlers are."""
        handlers = self.answer_to("state")
        return states(self.pid, pending=not self._often), handlers

    def masks(self) -> State:
        """The same without the mask of a thread that changes it all the time."""
        found, handlers = self.state()
        for fields in found.values():
            del fields["SigBlk:"]
        return found, handlers

    def end(self) -> tuple[int, int]:
        """What went wrong, and SIGTRAPs that it got."""
        wrong, traps, rounds_ = map(int, self.answer_to("end").split())
        assert rounds_ > 0 and self.process.wait(timeout=20) == 0
        return wrong, traps


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("traps") / "traps"
    return compiled(built, PROGRAMS / "traps.c", "-mno-red-zone")


@pytest.fixture
def patient(program: Path, request: pytest.FixtureRequest) -> Iterator[Patient]:
    patient = Patient(program, request.param)
    try:
        yield patient
    finally:
        kill_session(patient.process)


def look(patient: Patient, *, in_place: bool = True) -> api.SpinThread:
    """A look at the thread that works."""
    found = api.spin(patient.pid, threads=[patient.worker()], budget=0.2, in_place=in_place)
    return found.threads[0]


@pytest.mark.parametrize("patient", ["blocks"], indirect=True)
def test_a_thread_that_blocks_it_keeps_handler_and_mask(patient: Patient) -> None:
    before = patient.state()
    assert any(int(fields["SigBlk:"], 16) & 1 << 4 for fields in before[0].values())
    for _ in range(LOOKS):
        thread = look(patient)
        assert thread.steps > 10 and thread.via == "in-place", thread
        assert patient.state() == before
    assert patient.end() == (0, 0)


@pytest.mark.parametrize("patient", ["sets", "waits", "handles"], indirect=True)
def test_a_thread_that_blocks_it_at_times_keeps_its_handler(patient: Patient) -> None:
    before = patient.masks()
    for _ in range(LOOKS):
        assert look(patient).steps > 10
        assert patient.masks() == before
    assert patient.end() == (0, 0)


@pytest.mark.parametrize("patient", ["calls"], indirect=True)
def test_so_does_one_whose_copy_does_not_serve(patient: Patient) -> None:
    before, steps = patient.state(), 0
    for verb in ("spin", "why") * LOOKS:
        ran = flagfinder(verb, patient.pid, timeout=60)
        assert ran.returncode in (0, 1), ran.stderr
        steps += "stepped (" in ran.stdout
        assert patient.state() == before
    assert patient.end() == (0, 0)


@pytest.mark.parametrize("patient", ["ignores"], indirect=True)
def test_one_that_ignores_it_is_not_stepped(patient: Patient) -> None:
    before = patient.state()
    thread = look(patient)
    assert thread.steps == 0 and "ignores SIGTRAP" in thread.reason, thread
    assert "without --in-place looks at a copy" in thread.reason
    assert look(patient, in_place=False).via == "replica"
    assert patient.state() == before
    assert patient.end() == (0, 0)


@pytest.mark.parametrize("patient", ["steps"], indirect=True)
@pytest.mark.parametrize("in_place", [False, True], ids=["copied", "in-place"])
def test_one_that_steps_itself_gets_all_of_its_traps(patient: Patient, in_place: bool) -> None:
    for _ in range(3 * LOOKS):
        look(patient, in_place=in_place)
    assert patient.end() == (0, 0)


@pytest.mark.parametrize("patient", ["begins"], indirect=True)
def test_stepping_ends_before_it_begins_to_ignore_it(patient: Patient) -> None:
    for _ in range(LOOKS):
        look(patient)
    assert patient.end() == (0, 0)


@pytest.mark.parametrize("patient", ["blocks"], indirect=True)
@pytest.mark.parametrize("to_thread", [False, True], ids=["process", "thread"])
def test_one_that_waits_before_goes_on_waiting(patient: Patient, to_thread: bool) -> None:
    _send(patient, to_thread)
    before = patient.state()
    thread = look(patient)
    assert thread.steps == 0 and "SIGTRAP of its own waits" in thread.reason, thread
    assert patient.state() == before
    assert patient.end() == (0, 0)


@pytest.mark.parametrize("patient", ["blocks"], indirect=True)
@pytest.mark.parametrize("to_thread", [False, True], ids=["process", "thread"])
def test_one_that_comes_meanwhile_waits(patient: Patient, to_thread: bool) -> None:
    before = patient.state()
    sent = threading.Event()

    def send() -> None:
        deadline = time.monotonic() + 20
        while not is_traced(patient.pid) and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.02)
        sent.set()
        _send(patient, to_thread)

    sender = threading.Thread(target=send)
    sender.start()
    look(patient)
    sender.join()
    after = patient.state()
    assert sent.is_set() and after[1] == before[1]
    waiting = {
        (name, field): fields.pop(field)
        for name, fields in after[0].items()
        for field in ("SigPnd:", "ShdPnd:")
    }
    assert any(int(mask, 16) & 1 << 4 for mask in waiting.values()), waiting
    for fields in before[0].values():
        del fields["SigPnd:"], fields["ShdPnd:"]
    assert after[0] == before[0]
    assert patient.end() == (0, 0), "it was delivered though it is blocked"


def _send(patient: Patient, to_thread: bool) -> None:
    if to_thread:
        libc = __import__("ctypes").CDLL(None)
        tgkill = 234
        assert libc.syscall(tgkill, patient.pid, patient.worker(), int(signal.SIGTRAP)) == 0
    else:
        os.kill(patient.pid, signal.SIGTRAP)


@pytest.mark.parametrize("patient", ["computes"], indirect=True)
def test_a_kill_in_the_middle_leaves_it(patient: Patient) -> None:
    before, in_the_middle = patient.state(), 0
    # Where others take the processors, a thread may be let go before the kill comes.
    for kill in range(5 * LOOKS):
        if kill >= LOOKS and in_the_middle:
            break
        command = subprocess.Popen(
            [*FLAGFINDER, "spin", "--in-place", "--budget", "5", str(patient.pid)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 20
        while not is_traced(patient.pid) and time.monotonic() < deadline:
            time.sleep(0.001)
        command.kill()
        command.wait(timeout=10)
        in_the_middle += is_traced(patient.pid)
        while is_traced(patient.pid):
            assert time.monotonic() < deadline, "the helper did not let go"
            time.sleep(0.005)
        assert patient.state() == before
    assert in_the_middle, "no kill came while a thread was held: the test tested nothing"
    assert patient.end() == (0, 0)
