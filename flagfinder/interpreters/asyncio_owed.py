# SPDX-License-Identifier: MIT
"""What the tasks of an event loop wait for, and which of them is to end it.

In: the Python code of all threads, and a process. Out: for each thread that runs an event loop of
asyncio, the wait that keeps it, where that can only be ended by another task of the loop (an event,
a queue, a lock, a future); and notes on the others. A loop in which some task waits for a
descriptor or for a time may go on by itself: there the engine tells whose turn it is.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from flagfinder.interpreters.asyncio_tasks import Task, keeper, loop_of, tasks_of
from flagfinder.interpreters.py_spy import SeenStack, look
from flagfinder.interpreters.python import PythonCode, PythonFrame
from flagfinder.interpreters.python_blocked import awaited, blocked
from flagfinder.interpreters.python_sources import Sources, is_library
from flagfinder.interpreters.which import UnreadableError
from flagfinder.shared.proc_lines import proc_lines
from flagfinder.shared.record import dataclass

if TYPE_CHECKING:
    from flagfinder.interpreters.fields import TaskEnd

_LOOP = re.compile(r"/asyncio/(base_events|runners)\.py$")
_RUNS = ("run_forever", "run_until_complete", "_run_once")
_TASK = re.compile(r"^<_asyncio\.Task at ")
# Files of the library whose waits only code of the same loop ends.
_WITHIN = re.compile(r"/asyncio/(locks|queues)\.py$")
# And of waits for other tasks. Two of their functions have a time limit.
_JOINS = re.compile(r"/asyncio/(tasks|taskgroups)\.py$")
_LIMITED = ("sleep", "wait_for")
# Signals by which programs are told to end, or to do something.
_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_PATIENCE = 2.0  # s
_MOST_TOLD = 4


@dataclass(frozen=True)
class LoopWait:
    """What a thread's event loop waits for. ``name``: the statement of the task that keeps it;
    None where the loop may go on by itself. ``statement`` and ``at``: the same without its place,
    and that. ``end`` says what ends that wait, and ``why`` in words. ``is_locked``: each task waits
    for a lock, which no new client gives back. ``notes`` tell of the other tasks.
    """

    name: str | None
    statement: str | None
    at: PythonFrame | None
    end: TaskEnd
    why: str
    is_locked: bool
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Served:
    """The event loop of thread ``tid`` ends another thread's wait for a coroutine. ``frames``: of
    its task, innermost first; none where that has not begun.
    """

    tid: int
    reason: str
    frames: tuple[PythonFrame, ...]


def loop_waits(
    pid: int, codes: Mapping[int, PythonCode], sources: Sources
) -> tuple[dict[int, LoopWait], dict[int, Served]]:
    """By thread: for those that run an event loop whose tasks can be read, and for those that wait
    for what such a loop runs.
    """
    if not any(_LOOP.search(frame.file) for code in codes.values() for frame in code.frames):
        return {}, {}
    try:
        seen = look(pid, timeout=_PATIENCE)
        known = {tid: _task(stack) or 0 for tid, stack in seen.items()}
        loops = {tid: _loop(stack) or loop_of(pid, known[tid]) for tid, stack in seen.items()}
        loops = {tid: loop for tid, loop in loops.items() if loop}
        read = {tid: tasks_of(pid, loop) for tid, loop in loops.items()}
        waiting = {tid: _future(stack) for tid, stack in seen.items()}
        served = {
            tid: _served(pid, future, loops, read) for tid, future in waiting.items() if future
        }
    except (OSError, UnreadableError):
        return {}, {}
    signals = _handled(pid)
    found = {
        tid: loop_wait(known[tid], [task for task in tasks if task.frames], sources, signals)
        for tid, tasks in read.items()
    }
    return (
        {tid: wait for tid, wait in found.items() if wait is not None},
        {tid: one for tid, one in served.items() if one is not None},
    )


def _loop(stack: SeenStack) -> int:
    """The event loop that a thread runs; 0 where it runs none that is written in Python."""
    return next(
        (
            frame.locals["self"][1]
            for frame in stack.frames
            if _LOOP.search(frame.file) and "self" in frame.locals
            if frame.function.rpartition(".")[2] in _RUNS
        ),
        0,
    )


def _task(stack: SeenStack) -> int | None:
    """The task that the loop is to run until it is done."""
    for frame in stack.frames:
        for text, address in frame.locals.values():
            if _TASK.match(text):
                return address
    return None


def _future(stack: SeenStack) -> int:
    """What a thread waits for in ``Future.result()`` of ``concurrent.futures``; else 0."""
    return next(
        (
            frame.locals["self"][1]
            for frame in reversed(stack.frames)
            if frame.file.endswith("/concurrent/futures/_base.py") and "self" in frame.locals
            if frame.function.rpartition(".")[2] in ("result", "exception")
        ),
        0,
    )


def _served(
    pid: int, future: int, loops: Mapping[int, int], tasks: Mapping[int, Sequence[Task]]
) -> Served | None:
    found = keeper(pid, future, loops.values())
    if found is None:
        return None
    address, loop = found
    tid = next(tid for tid, one in loops.items() if one == loop)
    task = next((task for task in tasks[tid] if task.address == address), None)
    if task is None:
        return Served(tid, "its event loop is to run that", ())
    where = f", in task {task.name}" if task.name else ""
    return Served(tid, f"its event loop runs that{where}", task.frames)


def _handled(pid: int) -> list[str]:
    """Signals for which the program has handlers of its own: asyncio has one for SIGINT."""
    try:
        lines = proc_lines(f"/proc/{pid}/status")
    except OSError:
        return []
    mask = next((int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:")), 0)
    return [number.name for number in _ENDING if mask >> (number - 1) & 1]


def loop_wait(
    main: int, tasks: Sequence[Task], sources: Sources, signals: Sequence[str] = ()
) -> LoopWait | None:
    """The same, given the tasks; ``main`` is the address of the one that ends the loop, and
    ``signals`` are those that the program handles.
    """
    by_address = {task.address: task for task in tasks}
    first = by_address.get(main)
    if first is None:
        return None
    tasks = [task for task in tasks if task.loop == first.loop]
    # A task that awaits another, or several that were gathered, waits for what those wait for.
    leaves = [task for task in tasks if task.waits_for == "Future" and not _joins(task)]
    chain = list(_chain(first, by_address))
    last = chain[-1]
    within = [task for task in leaves if _is_within(task)]
    is_stuck = bool(within) and len(within) == len(leaves)
    stuck = last if _is_within(last) else within[0] if is_stuck else None
    others = [task for task in leaves if task is not stuck and _own(task) is not None]
    notes = [_told(task, sources) for task in others]
    if len(notes) > _MOST_TOLD:
        left = len(notes) - _MOST_TOLD
        more = "1 more task waits" if left == 1 else f"{left} more tasks wait"
        notes = [*notes[:_MOST_TOLD], more]
    if stuck is None:
        return LoopWait(None, None, None, "unknown", "", False, tuple(notes))
    owed = _owed(stuck, tasks, sources)
    if owed is not None:
        other, by = owed
        end: TaskEnd = "timer" if _sleeps(other) else "unknown"
        why = f"{_told(other, sources)}, and {by}"
    else:
        end = "deadlock" if is_stuck else "unknown"
        why = _why_nobody(len(tasks) - 1, is_stuck=is_stuck)
        if is_stuck and signals:
            end = "input"
            why += f"; it has a handler of {' and '.join(signals)}, and no such signal has come"
    at = _own(stuck) or stuck.frames[-1]
    text = awaited(at, sources)
    bare = f"`{text}`" if text is not None else at.function
    is_locked = is_stuck and all(map(_takes_lock, leaves))
    return LoopWait(_statement(stuck, sources), bare, at, end, why, is_locked, tuple(notes))


def _chain(task: Task, tasks: Mapping[int, Task]) -> Iterator[Task]:
    passed = set()
    while task.address not in passed:
        passed.add(task.address)
        yield task
        task = tasks.get(task.waiter, task)


def _is_within(task: Task) -> bool:
    """It waits for what only code of its loop does: it awaits a lock or the like of the library, or
    a bare future.
    """
    if task.waits_for != "Future":
        return False
    innermost = task.frames[0]
    return bool(_WITHIN.search(innermost.file)) or not is_library(innermost.file)


def _takes_lock(task: Task) -> bool:
    innermost = task.frames[0]
    name = innermost.function.rpartition(".")[2]
    return bool(_WITHIN.search(innermost.file)) and name == "acquire"


def _sleeps(task: Task) -> bool:
    return task.frames[0].function == "sleep"


def _joins(task: Task) -> bool:
    innermost = task.frames[0]
    return bool(_JOINS.search(innermost.file)) and innermost.function not in _LIMITED


def _told(task: Task, sources: Sources) -> str:
    name = f"task {task.name} " if task.name else "a task "
    does = "sleeps" if _sleeps(task) else "waits"
    return f"{name}{does} in {_statement(task, sources)}"


def _statement(task: Task, sources: Sources) -> str:
    """The expression that a task awaits in the program's own code, and where it stands."""
    own = _own(task) or task.frames[-1]
    text = awaited(own, sources)
    place = f"{own.function} at {own.file.rpartition('/')[2]}:{own.line}"
    return f"`{text}` ({place})" if text is not None else place


def _own(task: Task) -> PythonFrame | None:
    """The innermost frame of the program's own code."""
    return next((frame for frame in task.frames if not is_library(frame.file)), None)


def _owed(stuck: Task, tasks: Sequence[Task], sources: Sources) -> tuple[Task, str] | None:
    """Which task is to end the wait, and by which code."""
    what = blocked(stuck.address, {task.address: task.frames for task in tasks}, sources)
    answers = what.owed if what is not None else {}
    return next(((task, answers[task.address]) for task in tasks if task.address in answers), None)


def _why_nobody(others: int, *, is_stuck: bool) -> str:
    if others == 0:
        return "its event loop has no other task"
    tasks = "task" if others == 1 else "tasks"
    if is_stuck:
        return (
            f"its event loop has {others} more {tasks}, and none goes on: they wait for each "
            "other, or for events, queues and locks"
        )
    if others == 1:
        return "the other task of its event loop is not known to end that"
    return f"none of the {others} other tasks of its event loop is known to end that"
