# SPDX-License-Identifier: MIT
"""What a blocked thread of a Python program waits for, and whose code lets it go on."""

from __future__ import annotations

import ast

import pytest

from flagfinder.interpreters.python import PythonFrame
from flagfinder.interpreters.python_blocked import Blocked, blocked
from flagfinder.interpreters.python_sources import Sources

LIBRARY = "/usr/lib/python3.11/queue.py"
PROGRAM = """\
def one(self):
    with self.a:
        sleep()
        with b: pass
def two():
    with b:
        sleep()
        with it.a: pass
def ask(done, jobs):
    x = done.get()
    jobs.put(cfg.get(1))
def work(jobs, done):
    for job in iter(jobs.get, None):
        done.put(job)
def takes():
    lock.acquire()
    sleep()
    lock.release()
def opens():
    with open(x), a: pass
def serve(self):
    while True:
        job = self.jobs.get()
        answer(job)
def main():
    feeder = threading.Thread(target=fill, daemon=True)
    feeder.join()
def fill():
    jobs.put(1)
def load(parts):
    wait(parts)
    wait(parts, timeout=None, return_when=FIRST_COMPLETED)
def polls(self):
    while True:
        job = self.jobs.get()
        lock.acquire()
        use(job)
        lock.release()
"""


class _One(Sources):
    """One file, whichever is asked for."""

    def __init__(self) -> None:
        pass

    def tree(self, file: str) -> ast.Module | None:
        return ast.parse(PROGRAM) if file == "app.py" else None


def look(*stacks: list[tuple[str, int]]) -> Blocked | None:
    """What the first of these threads is blocked in. Functions without a line are the library's."""
    frames = {
        tid: [PythonFrame(name, "app.py" if line else LIBRARY, line) for name, line in stack]
        for tid, stack in enumerate(stacks)
    }
    return blocked(0, frames, _One())


def test_two_locks_are_taken_in_two_orders() -> None:
    one, two = [("one", 4)], [("two", 8)]
    assert look(one, two) == Blocked(
        "`with b` (one at app.py:4)",
        "`with b`",
        {1: "its function two holds that, at app.py:6"},
    )
    assert look(two, one) == Blocked(
        "`with it.a` (two at app.py:8)",
        "`with it.a`",
        {1: "its function one holds that, at app.py:2"},
    )


def test_a_queue_is_filled_by_the_thread_that_comes_to_put() -> None:
    ask = [("Condition.wait", 0), ("Queue.get", 0), ("<listcomp>", 10), ("ask", 10)]
    found = look(ask, [("work", 13)], [("ask", 11)])
    assert found == Blocked(
        "`done.get()` (ask at app.py:10)",
        "`done.get()`",
        {1: "its function work comes to `done.put()`"},
    )
    alone = look(ask)
    assert alone is not None
    assert alone.owed == {}


@pytest.mark.parametrize(
    ("stack", "text"),
    [
        ([("wait", 0), ("put", 0), ("ask", 11)], "`jobs.put()` (ask at app.py:11)"),
        ([("takes", 16)], "`lock.acquire()` (takes at app.py:16)"),
        ([("__enter__", 0), ("two", 6)], "`with b` (two at app.py:6)"),
        ([("opens", 20)], "`with a` (opens at app.py:20)"),
        # Blocked in another function than the one that is called, or in one of two.
        ([("Event.wait", 0), ("wait", 0), ("load", 31)], "`wait(parts)` (load at app.py:31)"),
        ([("Event.wait", 0), ("wait", 0), ("load", 32)], "`wait()` (load at app.py:32)"),
        ([("send", 0), ("ask", 10)], "send, called by ask at app.py:10"),
        ([("Condition.wait", 0), ("Pool.map", 0), ("one", 3)], "map, called by one at app.py:3"),
    ],
)
def test_the_statement_is_told(stack: list[tuple[str, int]], text: str) -> None:
    found = look(stack)
    assert found is not None
    assert found.text == text


@pytest.mark.parametrize(
    "stack",
    [
        [("one", 3)],  # no call that is known to block
        [("ask", 11)],  # two calls that may block
        [("run", 0)],  # none of the program's code
    ],
)
def test_nothing_is_said_that_the_source_does_not_tell(stack: list[tuple[str, int]]) -> None:
    assert look(stack) is None


def test_a_thread_that_waits_for_a_lock_does_not_hold_it() -> None:
    found = look([("one", 4)], [("two", 6)])
    assert found is not None
    assert found.owed == {}
    # In a loop it takes the lock first, and gives it back.
    asks = [("takes", 16)]
    found = look(asks, [("get", 0), ("polls", 35)])
    assert found is not None
    assert found.owed == {}
    found = look(asks, [("polls", 37)])
    assert found is not None
    assert found.owed == {1: "its function polls comes to `lock.release()`"}
    found = look([("takes", 16)], [("takes", 17)])
    assert found is not None
    assert found.owed == {1: "its function takes comes to `lock.release()`"}
    found = look([("takes", 16)], [("takes", 16)])
    assert found is not None
    assert found.owed == {}, "it waits for the same lock"


def test_a_thread_in_a_loop_comes_round_to_the_call() -> None:
    put = [("Queue.put", 0), ("fill", 29)]
    found = look(put, [("answer", 0), ("serve", 24)])
    assert found is not None
    assert found.owed == {1: "its function serve comes to `self.jobs.get()`"}
    over = look(put, [("answer", 0), ("ask", 11)])
    assert over is not None
    assert over.owed == {}


def test_the_result_of_a_task_is_owed_by_those_of_the_pool_that_run_one() -> None:
    def of(name: str, file: str) -> PythonFrame:
        return PythonFrame(name, f"/usr/lib/python3.11/concurrent/futures/{file}", 1)

    worker, waits = of("_worker", "thread.py"), of("Future.result", "_base.py")
    task = PythonFrame("ask", "app.py", 10)
    frames = {
        0: [of("wait", "threading.py"), waits, task, worker],
        1: [of("wait", "threading.py"), waits, task, worker],
        2: [worker],
        3: [PythonFrame("takes", "app.py", 17)],
        4: [of("select", "selectors.py"), of("_ExecutorManagerThread.run", "process.py")],
    }
    found = blocked(0, frames, _One())
    assert found is not None
    assert found.owed == {
        1: "it runs a task of a pool of threads",
        4: "it hands out the results of a pool of processes",
    }


def test_a_join_names_the_thread_that_runs_the_target() -> None:
    join = [("Thread.join", 0), ("main", 27)]
    found = look(join, [("Queue.put", 0), ("fill", 29), ("Thread.run", 0)], [("serve", 24)])
    assert found is not None
    assert found.owed == {1: "it runs fill, the target of that thread"}
    called = look(join, [("fill", 29), ("serve", 24)])
    assert called is not None
    assert called.owed == {}, "another thread that calls the function is not the one"
