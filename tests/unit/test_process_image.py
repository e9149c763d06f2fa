# SPDX-License-Identifier: MIT
"""The Python stacks of a process whose ``/proc/PID/exe`` is not the interpreter, but what loaded
it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flagfinder.interpreters import process_image
from flagfinder.interpreters.py_spy import loaded_by_another, look
from flagfinder.interpreters.which import UnreadableError

LOADER = "/lib64/ld-linux-x86-64.so.2"
PROGRAM = """
import time
def wait_for_it(done):
    print(flush=True)
    while not done:
        time.sleep(0.001)
wait_for_it([])
"""


@pytest.fixture(params=[[], [LOADER]], ids=["itself", "loader"])
def waiting(request: pytest.FixtureRequest) -> Iterator[tuple[int, bool]]:
    """A process of Python, and whether another program has loaded it."""
    python = str(Path(sys.executable).resolve())
    command = [*request.param, python, "-I", "-S", "-c", PROGRAM]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid, bool(request.param)
        process.kill()


def test_the_stack_is_read_whoever_loaded_the_interpreter(waiting: tuple[int, bool]) -> None:
    pid, is_loaded = waiting
    assert bool(loaded_by_another(pid)) == is_loaded
    frames = look(pid, timeout=20)[pid].frames
    assert [frame.function for frame in frames] == ["<module>", "wait_for_it"]
    assert frames[-1].locals["done"][0] == "[]"
    assert 4 <= frames[-1].line <= 6


def test_a_process_with_more_memory_than_is_copied_is_left_alone(
    waiting: tuple[int, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    pid, is_loaded = waiting
    monkeypatch.setattr(process_image, "MOST_BYTES", 1 << 12)
    if is_loaded:
        with pytest.raises(UnreadableError, match="MiB are copied"):
            look(pid, timeout=20)
    else:
        assert look(pid, timeout=20)
