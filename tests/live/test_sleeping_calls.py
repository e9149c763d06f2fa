# SPDX-License-Identifier: MIT
"""A look ends no call: threads that sleep in one sleep on, also in those that a stop would end with
an error or with a part of what was asked.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dead_mount import mounted
from harness import compiled, flagfinder, live_or_skip, needs_root, started

pytestmark = [pytest.mark.live, pytest.mark.timeout(300), needs_root("FUSE is mounted")]
SOURCE = Path(__file__).parent / "programs/sleeping_calls.c"
UNTIL_ALL_SLEEP = 2.0
IPC_RMID = 0


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("calls") / "sleeping_calls"
    return compiled(built, "-g", "-O1", "-pthread", SOURCE)


@pytest.fixture
def slow(program: Path, tmp_path: Path) -> Iterator[Path]:
    """A file of a server that ends what is interrupted, and nothing else."""
    with mounted(program, tmp_path) as mount:
        mount.answers_interrupts_only()
        yield mount.app


def cleaned(told: str) -> list[str]:
    """The calls that returned; what the program left behind is removed."""
    libc = ctypes.CDLL(None)
    for line in told.splitlines():
        match line.split():
            case ["semaphore", number]:
                libc.semctl(int(number), 0, IPC_RMID)
            case ["queue", number]:
                libc.msgctl(int(number), IPC_RMID, None)
            case ["folder", place]:
                shutil.rmtree(place)
    return [line for line in told.splitlines() if line.startswith("returned")]


@pytest.mark.parametrize(
    "words",
    [
        ["spin", "--in-place"],
        ["spin"],
        ["why"],
        ["poke", "--dry-run"],
    ],
    ids=["stepped", "spin", "why", "poke"],
)
def test_no_look_ends_a_call(program: Path, slow: Path, tmp_path: Path, words: list[str]) -> None:
    told = tmp_path / "told"
    with told.open("w") as out, started([program, slow], stdout=out) as process:
        time.sleep(UNTIL_ALL_SLEEP)
        before = told.read_text()
        ran = flagfinder(words[0], str(process.pid), *words[1:])
        time.sleep(0.5)
        assert process.poll() is None
    returned = cleaned(told.read_text())
    assert "returned" not in before, before
    assert not returned, ran.stdout


@pytest.mark.parametrize("call", ["sleep", "poll"])
def test_a_filter_of_calls_sees_none_that_the_program_does_not_make(
    call: str, tmp_path: Path
) -> None:
    """The kernel goes on with such a call by another one, which a sandbox may forbid."""
    program = compiled(tmp_path / "filtered", SOURCE.with_name("filtered_calls.c"))
    with started([program, call], stdout=subprocess.PIPE, text=True) as patient:
        assert patient.stdout is not None
        if patient.stdout.readline() != "ready\n":
            live_or_skip("this machine lets nobody filter calls")
        for verb in (["spin"], ["why"], ["spin", "--in-place"], ["poke", "--dry-run"]):
            flagfinder(*verb, patient.pid, timeout=120)
            time.sleep(0.2)
            assert patient.poll() is None, verb
