# SPDX-License-Identifier: MIT
"""Tasks of an event loop, as memory has them, and what they wait for."""

from __future__ import annotations

import ast
import asyncio
import os
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from flagfinder.interpreters.asyncio_owed import LoopWait, loop_wait
from flagfinder.interpreters.asyncio_tasks import (
    Task,
    keeper,
    line_at,
    line_of_3_10,
    loop_of,
    tasks_of,
)
from flagfinder.interpreters.python import PythonFrame
from flagfinder.interpreters.python_sources import Sources

PROGRAM = """\
async def main(stop):
    await stop.wait()
async def sets(stop):
    await asyncio.sleep(9)
    stop.set()
async def takes(jobs):
    await jobs.get()
"""
LOCKS, TASKS = "/usr/lib/python3.11/asyncio/locks.py", "/usr/lib/python3.11/asyncio/tasks.py"


class _One(Sources):
    """One file, whichever is asked for."""

    def __init__(self) -> None:
        pass

    def tree(self, file: str) -> ast.Module | None:
        return ast.parse(PROGRAM) if file == "/srv/app.py" else None


def task(address: int, *frames: PythonFrame, waits_for: str = "Future", waiter: int = 1) -> Task:
    return Task(address, 7, f"T{address}", frames, waiter, waits_for)


def own(function: str, line: int) -> PythonFrame:
    return PythonFrame(function, "/srv/app.py", line)


WAITS = task(100, PythonFrame("Event.wait", LOCKS, 213), own("main", 2))
SETS = task(200, PythonFrame("sleep", TASKS, 639), own("sets", 4))
TAKES = task(300, PythonFrame("Queue.get", LOCKS.replace("locks", "queues"), 158), own("takes", 7))
GATHERS = task(400, own("main", 2), waits_for="_GatheringFuture")
JOINS = task(500, own("main", 2), waits_for="Task", waiter=300)


def wait(*tasks: Task) -> LoopWait:
    """What the first of these tasks keeps its loop waiting for."""
    found = loop_wait(tasks[0].address, tasks, _One())
    assert found is not None
    return found


def test_the_task_that_is_to_end_the_wait_is_told_with_what_keeps_it() -> None:
    found = wait(WAITS, SETS)
    assert found.name == "`await stop.wait()` (main at app.py:2)"
    assert found.why.startswith("task T200 sleeps in `await asyncio.sleep(9)` (sets at app.py:4)")
    assert found.why.endswith("its function sets comes to `stop.set()`")
    assert found.end == "timer"


def test_a_loop_in_which_a_task_sleeps_may_go_on() -> None:
    found = wait(GATHERS, TAKES, SETS)
    assert found.name is None
    assert found.notes[0] == "task T300 waits in `await jobs.get()` (takes at app.py:7)"


def test_a_loop_in_which_all_tasks_wait_for_each_other_is_stuck() -> None:
    found = wait(GATHERS, TAKES)
    assert found.name == "`await jobs.get()` (takes at app.py:7)"
    assert "none goes on" in found.why
    assert found.end == "deadlock"


def test_one_other_task_is_told_as_one() -> None:
    assert wait(GATHERS, TAKES, TAKES).why.startswith("its event loop has 2 more tasks")
    assert wait(GATHERS, TAKES).why.startswith("its event loop has 1 more task, and")


def test_a_loop_that_a_signal_may_end_is_not_stuck() -> None:
    found = loop_wait(WAITS.address, [WAITS], _One(), ["SIGTERM"])
    assert found is not None
    assert found.end == "input"
    assert "a handler of SIGTERM" in found.why


def test_a_task_that_awaits_another_waits_for_what_that_waits_for() -> None:
    assert wait(JOINS, TAKES, SETS).name == "`await jobs.get()` (takes at app.py:7)"


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


@pytest.mark.parametrize("module", ["ast", "asyncio.base_events"])
def test_lines_are_those_that_python_gives(module: str) -> None:
    file = Path(__import__(module, fromlist=["x"]).__file__ or "")
    whole = compile(file.read_text(encoding="utf-8"), str(file), "exec")
    for code in codes(whole):
        lines = [line for line, *_ in code.co_positions()]
        found = [
            line_at(code.co_linetable, code.co_firstlineno, unit) for unit in range(len(lines))
        ]
        assert found == lines, code.co_qualname


def test_a_number_without_an_end_in_a_table_ends_it() -> None:
    endless = bytes([0x80 | 13 << 3]) + b"\x7f" * 200_000
    assert line_at(endless, 1, 0) is not None
    assert line_at(endless, 1, 9) is None


def test_lines_of_older_tables_are_read() -> None:
    # `dis` of 3.10: lines 7, 8 (for 4 bytes), none (2), 5, and 5 again.
    table = bytes([4, 6, 4, 1, 2, 128, 2, 253, 254, 0, 8, 0])
    found = [line_of_3_10(table, 1, unit) for unit in range(8)]
    assert found == [7, 7, 8, 8, None, 5, 5, 5]
    assert line_of_3_10(table, 1, 1000) is None


def test_tasks_are_read_from_memory() -> None:
    async def inner(event: asyncio.Event) -> None:
        await event.wait()

    async def outer(event: asyncio.Event) -> None:
        await inner(event)

    async def main() -> list[Task]:
        event = asyncio.Event()
        waits = asyncio.create_task(outer(event), name="one")
        joins = asyncio.create_task(asyncio.wait_for(waits, 60), name="two")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert loop_of(os.getpid(), id(waits)) == id(asyncio.get_running_loop())
        found = tasks_of(os.getpid(), id(asyncio.get_running_loop()))
        event.set()
        await joins
        return [task for task in found if task.address in (id(waits), id(joins))]

    found = {task.address: task for task in asyncio.run(main())}
    # What this interpreter's frames look like is known of some versions only.
    one, two = sorted(found.values(), key=lambda task: len(task.frames), reverse=True)
    first = asyncio.locks.Event.wait.__code__.co_firstlineno
    assert [frame.function.rpartition(".")[2] for frame in one.frames] == ["wait", "inner", "outer"]
    assert one.frames[0].line > first and one.frames[0].file == asyncio.locks.__file__
    assert one.waits_for == "Future"
    assert two.frames[0].function == "wait_for"


def test_which_loop_is_to_end_a_threads_wait_is_read_from_memory() -> None:
    async def main() -> None:
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        begun = asyncio.run_coroutine_threadsafe(event.wait(), loop)
        queued = keeper(os.getpid(), id(begun), {id(loop)})
        assert queued is not None and queued[1] == id(loop)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task = next(iter(asyncio.all_tasks(loop) - {asyncio.current_task()}))
        assert keeper(os.getpid(), id(begun), {id(loop)}) == (id(task), id(loop))
        assert keeper(os.getpid(), id(begun), {id(event)}) is None
        assert keeper(os.getpid(), id(event), {id(loop)}) is None
        event.set()
        await asyncio.sleep(0)

    asyncio.run(main())
