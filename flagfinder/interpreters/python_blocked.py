# SPDX-License-Identifier: MIT
"""What a blocked thread of a Python process waits for, and whose code lets it go on.

In: the frames of all threads, and the sources. Out: the statement of the program at which the
thread is blocked (`with lock`, `jobs.get()`), and the threads that hold the lock, or can still come
to the call that ends the wait. Where no such statement is there, the function of the library is
told that the program called, and where. Locks, queues and threads are told apart by the last part
of their name, so another object's of the same name is taken for it. The result of a pool's task is
owed by the pool's threads that run one. Blind spots: functions that are on no stack yet; frames of
a library, which are passed over; threads that a list holds; which of several pools it is.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TypeGuard

from flagfinder.interpreters.python import PythonFrame
from flagfinder.interpreters.python_bindings import within
from flagfinder.interpreters.python_loop import Scope, scope_around
from flagfinder.interpreters.python_sources import Sources, is_library
from flagfinder.shared.record import dataclass

# What blocks, and the calls on the same object that end it.
_ENDED_BY = {
    "with": ("release",),
    "acquire": ("release",),
    "get": ("put", "put_nowait"),
    "put": ("get", "get_nowait"),
    "wait": ("set", "notify", "notify_all"),
    "wait_for": ("notify", "notify_all"),
    "result": ("set_result", "set_exception"),
    "join": ("task_done",),
}
# Functions of `concurrent.futures` that wait for tasks, and what its threads run.
_OF_TASKS = ("result", "exception", "wait", "as_completed", "result_iterator")
_POOLS = {
    ("thread.py", "_worker"): "it runs a task of a pool of threads",
    ("process.py", "run"): "it hands out the results of a pool of processes",
}
_SHORT = 40  # characters of a call that is told whole


@dataclass(frozen=True)
class Blocked:
    """``text``: the expression or function, and where it stands; ``statement``: without that.
    ``owed``: threads, by what.
    """

    text: str
    statement: str
    owed: dict[int, str]


def blocked(
    tid: int, frames: Mapping[int, Sequence[PythonFrame]], sources: Sources
) -> Blocked | None:
    """What thread ``tid`` is blocked in; None where its source does not tell."""
    stack = frames[tid]
    own = [at for at, frame in enumerate(stack) if not is_library(frame.file)]
    if not own:
        return None
    called = stack[own[0] - 1].function.rpartition(".")[2] if own[0] else None
    # The function around a comprehension.
    frame = next(
        (stack[at] for at in own if not stack[at].function.endswith("comp>")), stack[own[0]]
    )
    scope = _scope(frame, sources)
    waits = list(_waits(scope, frame.line)) if scope is not None else []
    # What is made in C has no frame.
    waits = [
        wait for wait in waits if called in (None, "__enter__" if wait[0] == "with" else wait[0])
    ]
    of_pool = dict(_of_pool(tid, frames)) if _waits_for_task(stack[: own[0]]) else {}
    if len(waits) != 1:
        if called is None:
            return None
        place = f"{frame.function} at {_file(frame)}:{frame.line}"
        if scope is not None and (text := _calls(scope, called, frame.line)) is not None:
            return Blocked(f"`{text}` ({place})", f"`{text}`", of_pool)
        return Blocked(f"{called}, called by {place}", called, of_pool)
    how, what, text = waits[0]
    targets = _targets(frame, _name(what), sources) if how == "join" else frozenset()
    answers = {
        other: _runs(theirs, targets) or _answer(theirs, how, _name(what), sources)
        for other, theirs in frames.items()
        if other != tid
    }
    return Blocked(
        f"`{text}` ({frame.function} at {_file(frame)}:{frame.line})",
        f"`{text}`",
        of_pool | {other: answer for other, answer in answers.items() if answer},
    )


def _waits_for_task(within: Sequence[PythonFrame]) -> bool:
    """Whether these open calls wait for what a pool of `concurrent.futures` was given."""
    return any(
        frame.file.endswith("/concurrent/futures/_base.py")
        and frame.function.rpartition(".")[2] in _OF_TASKS
        for frame in within
    )


def _of_pool(tid: int, frames: Mapping[int, Sequence[PythonFrame]]) -> Iterator[tuple[int, str]]:
    """The other threads that run tasks of a pool, and those that hand out what processes did. One
    without a task would have begun with what is waited for.
    """
    for other, theirs in frames.items():
        for at, frame in enumerate(theirs):
            of = frame.file.rpartition("/concurrent/futures/")[2]
            what = _POOLS.get((of, frame.function.rpartition(".")[2]))
            if other != tid and what is not None and (at or of != "thread.py"):
                yield other, what


def awaited(frame: PythonFrame, sources: Sources) -> str | None:
    """What a suspended coroutine awaits at its line; None where the source does not tell."""
    scope = _scope(frame, sources)
    for node in within(scope) if scope is not None else ():
        if isinstance(node, ast.Await) and _is_at(node, frame.line):
            return ast.unparse(node)
        if isinstance(node, ast.AsyncFor) and _is_at(node.iter, frame.line):
            return f"async for {ast.unparse(node.target)} in {ast.unparse(node.iter)}"
        if isinstance(node, ast.AsyncWith):
            for item in node.items:
                if _is_at(item.context_expr, frame.line):
                    return f"async with {ast.unparse(item.context_expr)}"
    return None


def _scope(frame: PythonFrame, sources: Sources) -> Scope | None:
    tree = sources.tree(frame.file)
    return scope_around(tree, frame.function, [frame.line]) if tree is not None else None


def _file(frame: PythonFrame) -> str:
    return frame.file.rpartition("/")[2]


def _name(node: ast.expr) -> str:
    """The last part of `self.lock`."""
    return node.attr if isinstance(node, ast.Attribute) else ast.unparse(node)


def _waits(scope: Scope, line: int) -> Iterator[tuple[str, ast.expr, str]]:
    """How a line may block, on what, and its text."""
    for node in within(scope):
        if isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                what = item.context_expr
                if _is_at(what, line) and _is_object(what):
                    yield "with", what, f"with {ast.unparse(what)}"
        elif (method := _method(node, _ENDED_BY)) is not None and _is_at(method, line):
            yield method.attr, method.value, f"{ast.unparse(method)}()"


def _calls(scope: Scope, function: str, line: int) -> str | None:
    """The only call of the line that is one of this function, with what it is given if that is
    short.
    """
    found = [
        node
        for node in within(scope)
        if isinstance(node, ast.Call) and _is_at(node, line)
        if _is_object(node.func) and _name(node.func) == function
    ]
    if len(found) != 1:
        return None
    whole = ast.unparse(found[0])
    return whole if len(whole) <= _SHORT else f"{ast.unparse(found[0].func)}()"


def _is_at(node: ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or 0)


def _is_in(loop: ast.While | ast.For | ast.AsyncFor, line: int) -> bool:
    """Whether each round comes to the line."""
    return loop.body[0].lineno <= line <= (loop.body[-1].end_lineno or 0)


def _is_object(node: ast.expr) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute))


def _targets(frame: PythonFrame, name: str, sources: Sources) -> frozenset[str]:
    """The functions that threads of this name run: `name = Thread(target=function)`."""
    tree = sources.tree(frame.file)
    made = [
        keyword.value
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        if any(_is_object(target) and _name(target) == name for target in node.targets)
        for keyword in node.value.keywords
        if keyword.arg == "target" and _is_object(keyword.value)
    ]
    return frozenset(map(_name, made))


def _runs(frames: Sequence[PythonFrame], targets: Container[str]) -> str | None:
    """Whether the outermost function of the program that a thread is in is one of these."""
    own = [frame for frame in frames if not is_library(frame.file)]
    if not own or own[-1].function.rpartition(".")[2] not in targets:
        return None
    return f"it runs {own[-1].function}, the target of that thread"


def _answer(frames: Sequence[PythonFrame], how: str, name: str, sources: Sources) -> str | None:
    """The function on a thread's stack that holds what is waited for, or comes to its end."""
    for frame in frames:
        scope = _scope(frame, sources)
        if scope is None:
            continue
        loops = [
            node
            for node in within(scope)
            if isinstance(node, (ast.While, ast.For, ast.AsyncFor)) and _is_in(node, frame.line)
        ]
        for node in within(scope):
            if how in ("with", "acquire") and _holds(node, name, frame.line):
                return f"its function {frame.function} holds that, at {_file(frame)}:{node.lineno}"
            ends = _method(node, _ENDED_BY[how])
            if ends is None or _name(ends.value) != name:
                continue
            is_ahead = ends.lineno >= frame.line
            if not is_ahead and not any(_is_in(loop, ends.lineno) for loop in loops):
                continue
            # A lock that it first takes there, or waits for, is not one that it has now.
            taken = [
                node.lineno
                for node in map(_acquires, within(scope))
                if node is not None and _name(node.value) == name
                if (frame.line <= node.lineno or not is_ahead) and node.lineno <= ends.lineno
            ]
            if how not in ("with", "acquire") or not taken:
                return f"its function {frame.function} comes to `{ast.unparse(ends)}()`"
    return None


def _holds(node: ast.AST, name: str, line: int) -> TypeGuard[ast.With | ast.AsyncWith]:
    """Whether the line is in the block of `with name`."""
    if not isinstance(node, (ast.With, ast.AsyncWith)):
        return False
    is_inside = max(node.lineno + 1, node.body[0].lineno) <= line <= (node.end_lineno or 0)
    names = [_name(item.context_expr) for item in node.items if _is_object(item.context_expr)]
    return is_inside and name in names


def _acquires(node: ast.AST) -> ast.Attribute | None:
    return _method(node, ("acquire",))


def _method(node: ast.AST, names: Container[str]) -> ast.Attribute | None:
    """What is called, if it is a method of such a name."""
    func = node.func if isinstance(node, ast.Call) else None
    return func if isinstance(func, ast.Attribute) and func.attr in names else None
