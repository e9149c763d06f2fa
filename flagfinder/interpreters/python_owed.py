# SPDX-License-Identifier: MIT
"""What the threads of a Python process ask in their loops, and whose code gives it another value.

In: the Python code of all threads, and the sources. Out: for each thread whose loop only asks and
pauses, the question and the threads that answer it. A thread answers it if a function on its stack
assigns to the attribute, the item or the variable that is asked, fills the list or sets the event,
where it can still come to: behind its line, or in a loop around it. Blind spots: functions that are
on no stack yet; another object's attribute of the same name.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flagfinder.interpreters.asyncio_owed import loop_waits
from flagfinder.interpreters.python import (
    PythonCode,
    PythonFrame,
    PythonLoop,
    read_python,
)
from flagfinder.interpreters.python_bindings import within
from flagfinder.interpreters.python_blocked import blocked
from flagfinder.interpreters.python_loop import Scope, scope_around
from flagfinder.interpreters.python_pools import replaced_workers
from flagfinder.interpreters.python_sources import Sources, is_library
from flagfinder.shared.record import dataclass
from flagfinder.shared.syntax import expression_of

if TYPE_CHECKING:
    from flagfinder.interpreters.fields import (
        AskedFields,
        AskedOfFields,
        InSourceFields,
        SourceSpotFields,
    )

# What a question is answered by: `event.is_set()` by `event.set()`.
_ANSWERS = {"is_set": "set", "isSet": "set", "done": "set_result", "empty": "put"}


# Methods that put something into what they are called on.
_FILLS = {"append", "appendleft", "add", "extend", "insert", "put", "update", "setdefault"}


# nanosleep, clock_nanosleep; select, pselect6: without descriptors they only sleep.
_SLEEPS = {"35", "230"}
_SELECTS = {"23", "270"}
_FUTEX = "202"  # its fourth argument is the limit of time
_LAST_LINE = (1 << 32) - 1


@dataclass(frozen=True)
class _Place:
    """What is asked. ``kind``: an attribute, an item or a variable of this ``name``, or a method
    that is to be called. ``file`` is that of a variable, which others see only in their module.
    """

    kind: str
    name: str
    file: str


def asked_in_python(pid: int) -> tuple[InSourceFields, list[str]]:
    """What threads of process ``pid`` ask, with their open calls, and notes on tasks of their event
    loops and on workers of their pools. Raises UnreadableError where no Python can be read.
    """
    try:
        tids = {int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()}
    except OSError:
        return {"asked": [], "stacks": {}}, []
    codes, sources = read_python(pid, tids), Sources.of_process(pid)
    loops, served = loop_waits(pid, codes, sources)
    limits = {tid: _limit(pid, tid) for tid in codes}
    blocked_for_good = {tid for tid, limit in limits.items() if limit is False}
    asked = [
        in_loop(one, codes[one["tid"]].around) if limits[one["tid"]] else one
        for one in asked_of(codes, sources, blocked_for_good)
        if one["tid"] not in loops or one["tid"] in served
    ]
    for one in asked:
        if (by := served.get(one["tid"])) is not None:
            one["owed"] = [{"tid": by.tid, "reason": by.reason}]
    asked += [
        {
            "tid": tid,
            "name": wait.name,
            "statement": wait.statement,
            "at": spot(wait.at) if wait.at is not None else None,
            "owed": [],
            "nobody": wait.why,
            "blocks": True,
            "of_task": wait.end,
            "is_locked": wait.is_locked,
            "tells_all": False,
        }
        for tid, wait in loops.items()
        if wait.name is not None and tid not in served
    ]
    told = {one["tid"] for one in asked} | loops.keys()
    asked += [
        between
        for tid, code in codes.items()
        if tid not in told and code.loop is not None and _sleeps(pid, tid)
        if (between := asks_between(tid, code.loop)) is not None
    ]
    notes = [note for wait in loops.values() for note in wait.notes]
    stacks = {tid: [_with_variables(frame) for frame in code.frames] for tid, code in codes.items()}
    # Where such a loop waits, the task that another thread needs is suspended.
    of_tasks = {by.tid: [spot(frame) for frame in by.frames] for by in served.values()}
    for loop, frames in of_tasks.items():
        stacks[loop] = frames + stacks.get(loop, [])
    return {"asked": asked, "stacks": stacks}, notes + replaced_workers(pid, codes)


def _with_variables(frame: PythonFrame) -> SourceSpotFields:
    """As the engine takes it, with what it leaves."""
    place = spot(frame)
    place["locals"] = {**frame.variables}
    return place


def spot(place: PythonFrame | PythonLoop) -> SourceSpotFields:
    """As the engine takes it. Code that a program makes may have any number for a line."""
    line = place.line if 0 < place.line <= _LAST_LINE else None
    return {"function": place.function, "file": place.file, "line": line}


def _call(pid: int, tid: int) -> list[str]:
    """The call in which the thread is, and its arguments; no number of a call, if in none."""
    try:
        return Path(f"/proc/{pid}/task/{tid}/syscall").read_text(encoding="ascii").split()
    except OSError:
        return ["running"]


def _sleeps(pid: int, tid: int) -> bool:
    """Whether the thread is in a call that only the clock ends."""
    call = _call(pid, tid)
    return call[0] in _SLEEPS or (call[0] in _SELECTS and call[1] == "0x0")


def _limit(pid: int, tid: int) -> bool | None:
    """Of a thread that is blocked in a lock, whether the clock ends that; else None."""
    call = _call(pid, tid)
    return call[4] != "0x0" if call[0] == _FUTEX else None


def _ends(loop: PythonLoop) -> str | None:
    """What others do to end the loop; None where only an error or the loop itself does."""
    ends = [way.when for way in loop.exits if way.foreign and way.way != "raise" and way.when]
    return " or ".join(f"`{when}`" for when in dict.fromkeys(ends)) or None


def in_loop(asked: AskedFields, loop: PythonLoop | None) -> AskedFields:
    """The same of a thread whose wait the clock ends: it waits again, as long as the program's loop
    around it goes on.
    """
    ends = _ends(loop) if loop is not None and asked["blocks"] and not asked["owed"] else None
    if ends is None or asked["statement"] is None:
        return asked
    where = f", in a loop that ends when {ends}"
    name, statement = asked["name"] + where, asked["statement"] + where
    # The word at which the interpreter sleeps would say no more.
    return {**asked, "name": name, "statement": statement, "tells_all": True}


def asks_between(tid: int, loop: PythonLoop) -> AskedFields | None:
    """A thread that sleeps in this loop asks in between: the sleep is not what it waits for. None
    for a loop that only an error ends.
    """
    asks = _ends(loop)
    if asks is None:
        return None
    where = f"its loop in {loop.function} at {_file(loop.file)}:{loop.line}"
    return {
        "tid": tid,
        "name": where,
        "statement": f"its loop, which ends when {asks}",
        "at": spot(loop),
        "owed": [],
        "nobody": f"it sleeps between two looks of {where}, which ends when {asks}",
        "blocks": True,
        "of_task": "unknown",
        "tells_all": False,
    }


def asked_of(
    codes: Mapping[int, PythonCode], sources: Sources, blocked_for_good: Container[int] = ()
) -> list[AskedFields]:
    """The same, given the ``codes`` by thread id. A thread that is ``blocked_for_good`` asks
    nothing until that wait ends, also within a loop.
    """
    found: list[AskedFields] = []
    for tid, code in codes.items():
        loop = code.loop
        # The loop of `Queue.get` is how the program's statement waits.
        is_blocked = tid in blocked_for_good
        if is_blocked or loop is None or not loop.is_answer or is_library(loop.file):
            blocks = list(_blocked_of(tid, codes, sources))
            found += blocks
            if blocks:
                continue
        if loop is None or not loop.is_likely:
            continue
        when = _question(loop)
        places = list(_places(when, loop, list(_files(code, loop))))
        others = {other: codes[other].frames for other in codes if other != tid}
        answers = {
            other: _answer(frames, when, places, sources) for other, frames in others.items()
        }
        # What may do work may ask others than the threads of its own process.
        if not loop.is_answer and not any(answers.values()):
            continue
        found.append(
            {
                "tid": tid,
                "name": f"`{loop.when}` ({loop.function} at {_file(loop.file)}:{loop.line})",
                "statement": f"`{loop.when}`",
                "at": spot(loop),
                "owed": [
                    {"tid": other, "reason": reason} for other, reason in answers.items() if reason
                ],
                "nobody": f"it asks `{loop.when}` ({loop.function} at "
                f"{_file(loop.file)}:{loop.line}), and no function on another thread's Python "
                "stack changes that",
                "blocks": False,
                "tells_all": False,
            }
        )
    return found


def _blocked_of(
    tid: int, codes: Mapping[int, PythonCode], sources: Sources
) -> Iterator[AskedFields]:
    frames = {other: code.frames for other, code in codes.items()}
    if (what := blocked(tid, frames, sources)) is not None:
        owed: list[AskedOfFields] = [
            {"tid": other, "reason": reason} for other, reason in what.owed.items()
        ]
        yield {
            "tid": tid,
            "name": what.text,
            "statement": what.statement,
            "at": None,
            "owed": owed,
            "nobody": "",
            "blocks": True,
            "tells_all": False,
        }


def _question(loop: PythonLoop) -> ast.expr:
    """What ends the loop. Where an exception decides: what may raise it, and what the names come
    from.
    """
    try:
        return expression_of(loop.when or "()")
    except SyntaxError:
        return ast.Tuple(list(_sources(loop)), ast.Load())


def _sources(loop: PythonLoop) -> Iterator[ast.expr]:
    for way in loop.exits:
        for source in (way.when.partition(" does not raise ")[0], *way.where.values()):
            with contextlib.suppress(SyntaxError):  # `each of ..`
                yield expression_of(source)


def _file(path: str) -> str:
    return path.rpartition("/")[2]


def _files(code: PythonCode, loop: PythonLoop) -> Iterator[str]:
    """That of the loop, and of the code that called its function and may have handed over the
    question.
    """
    yield loop.file
    for frame, caller in zip(code.frames, code.frames[1:], strict=False):
        if (frame.function, frame.file) == (loop.function, loop.file) and caller.file != loop.file:
            yield caller.file


def _places(when: ast.expr, loop: PythonLoop, files: Iterable[str]) -> Iterator[_Place]:
    local = {value.name for value in loop.values}
    for node in [when, *within(when)]:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _ANSWERS
        ):
            yield _Place("call", _ANSWERS[node.func.attr], "")
        elif isinstance(node, ast.Attribute):
            yield _Place("attribute", node.attr, "")
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            yield _Place("item", repr(node.slice.value), "")
        elif isinstance(node, ast.Name) and node.id not in local:
            yield from (_Place("variable", node.id, file) for file in files)


def _answer(
    frames: Sequence[PythonFrame], when: ast.expr, places: Sequence[_Place], sources: Sources
) -> str | None:
    """The function on a thread's stack that changes what is asked."""
    for frame in frames:
        tree = sources.tree(frame.file)
        scope = scope_around(tree, frame.function, [frame.line]) if tree is not None else None
        if scope is None:
            continue
        for node in within(scope):
            line = getattr(node, "lineno", 0)
            if _changes(node, scope, frame.file, when, places) and _comes_to(
                scope, frame.line, line
            ):
                return f"its {frame.function} sets that, at {_file(frame.file)}:{line}"
    return None


def _changes(
    node: ast.AST, scope: Scope, file: str, when: ast.expr, places: Sequence[_Place]
) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if _Place("call", node.func.attr, "") in places:
            return True
        return node.func.attr in _FILLS and _named(node.func.value, file) in places
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
        targets = [node.target]
    else:
        return False
    value = node.value
    for target in targets:
        place = _stored(target, scope, file)
        if place in places and not (
            isinstance(value, ast.Constant) and _keeps(when, target, value)
        ):
            return True
    return False


def _named(node: ast.expr, file: str) -> _Place | None:
    if isinstance(node, ast.Attribute):
        return _Place("attribute", node.attr, "")
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return _Place("item", repr(node.slice.value), "")
    return _Place("variable", node.id, file) if isinstance(node, ast.Name) else None


def _stored(target: ast.expr, scope: Scope, file: str) -> _Place | None:
    if not isinstance(target, ast.Name):
        return _named(target, file)
    shared = {
        name
        for node in within(scope)
        if isinstance(node, (ast.Global, ast.Nonlocal))
        for name in node.names
    }
    return _named(target, file) if isinstance(scope, ast.Module) or target.id in shared else None


def _keeps(when: ast.expr, target: ast.expr, value: ast.Constant) -> bool:
    """Whether the wait goes on with this constant there, where the question is about it alone."""
    test, negated = when, False
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, negated = test.operand, not negated
    if type(test) is not type(target) or isinstance(test, (ast.Call, ast.Compare, ast.BoolOp)):
        return False
    return bool(value.value) == negated


def _comes_to(scope: Scope, at: int, line: int) -> bool:
    """Whether what stands at ``at`` can still come to ``line``."""
    loops = [node for node in within(scope) if isinstance(node, (ast.While, ast.For, ast.AsyncFor))]
    around = [
        loop
        for loop in loops
        if loop.lineno <= min(at, line) and max(at, line) <= (loop.end_lineno or 0)
    ]
    return line >= at or bool(around)
