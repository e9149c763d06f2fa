# SPDX-License-Identifier: MIT
"""``flagfinder why`` of programs that use Python's multiprocessing."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from harness import need_python_3_11, started
from planted import why

PYTHON = "/usr/bin/python3"
HEAD = """
import multiprocessing, os, signal, time
def say(*what):
    print(*what, flush=True)
"""
HELD = """
def hold(lock, taken):
    with lock:
        taken.set()
        time.sleep(1000)
lock, taken = multiprocessing.Lock(), multiprocessing.Event()
holder = multiprocessing.Process(target=hold, args=(lock, taken), daemon=True)
holder.start()
taken.wait()
say(holder.pid)
with lock:
    pass
"""
LEFT = """
def end(lock):
    lock.acquire()
    os.kill(os.getpid(), signal.SIGKILL)
lock = multiprocessing.Lock()
holder = multiprocessing.Process(target=end, args=(lock,))
holder.start()
holder.join()
say(holder.pid)
with lock:
    pass
"""
POOL = """
def work(number):
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.2)
with multiprocessing.Pool(2) as pool:
    say(os.getpid())
    pool.map(work, range(8), chunksize=1)
"""
# Each of the workers waits for a task; the one of them that reads holds their lock.
KILLED = """
with multiprocessing.Pool(2) as pool:
    pool.map(abs, range(4))
    time.sleep(0.5)
    for worker in list(pool._pool):
        os.kill(worker.pid, signal.SIGKILL)
    time.sleep(1)
    say(os.getpid())
    pool.map(abs, range(4))
"""


@contextmanager
def hung(code: str) -> Iterator[tuple[int, int]]:
    """Its process, and the number that it says."""
    need_python_3_11(PYTHON)
    with started([PYTHON, "-c", HEAD + code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        said = int(process.stdout.readline())
        time.sleep(1.5)  # until it waits
        yield process.pid, said
        assert process.poll() is None, "the program did not survive"


@pytest.mark.live
def test_the_process_that_holds_a_lock_is_named() -> None:
    with hung(HELD) as (pid, holder):
        report = why(pid)
    link = report["links"][0]
    assert link["owed_by"]["pid"] == holder, report["story"]
    assert (link["waits_for"]["kind"], link["known"]) == ("lock", "seen")
    assert report["root"]["kind"] == "timer"


@pytest.mark.live
def test_a_lock_whose_holder_was_killed_is_told() -> None:
    with hung(LEFT) as (pid, _):
        report = why(pid)
    assert report["root"]["kind"] == "ended", report["story"]
    assert "the one that did has ended without giving it back" in report["root"]["what"]


@pytest.mark.live
def test_workers_that_wait_for_a_lock_of_a_killed_one_have_one_cause() -> None:
    with hung(KILLED) as (pid, _):
        report = why(pid)
    assert report["root"]["kind"] == "ended", report["story"]
    assert report["root"]["pid"] != pid


@pytest.mark.live
def test_a_pool_that_lost_a_task_tells_of_the_worker_that_was_replaced() -> None:
    with hung(POOL) as (pid, _):
        report = why(pid)
    assert report["root"]["kind"] == "deadlock", report["story"]
    assert any("took the place of a worker of the pool" in note for note in report["notes"])
