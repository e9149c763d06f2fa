# SPDX-License-Identifier: MIT
"""A look ends no call: threads that sleep in one sleep on, also in those that a stop would end with
an error or with a part of what was asked.
"""

from __future__ import annotations

import ctypes
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dead_mount import mounted
from harness import compiled, flagfinder, needs_root, started

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
