# SPDX-License-Identifier: MIT
"""Which thread's Python code answers what another one asks."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from flagfinder.interpreters.python import (
    PythonCode,
    PythonExit,
    PythonFrame,
    PythonLoop,
)
from flagfinder.interpreters.python_owed import asked_of, asks_between, in_loop, spot
from flagfinder.interpreters.python_sources import Sources
from flagfinder.shared.record import replace

if TYPE_CHECKING:
    from flagfinder.interpreters.fields import AskedFields


class _One(Sources):
    """One file, whichever is asked for."""

    def __init__(self, text: str) -> None:
        self._text = text

    def tree(self, file: str) -> ast.Module | None:  # noqa: ARG002
        return ast.parse(self._text)


def _code(function: str, line: int, loop: PythonLoop | None = None) -> PythonCode:
    frames = (PythonFrame(function, "app.py", line),)
    return PythonCode(looks=12, seen=12, gil=0, frames=frames, loop=loop, note=None)


def _asks(when: str) -> PythonLoop:
    way = PythonExit(line=1, way="test", when=when, where={}, foreign=True)
    return PythonLoop("poll", "app.py", 1, 2, (1,), "waits", (), (way,), (), 0.8)


def owed(when: str, body: str, at: int = 2) -> bool:
    """Whether a thread that stands at line ``at`` of this function answers."""
    text = "def work():\n" + "\n".join(f"    {line}" for line in body.splitlines()) + "\n"
    codes = {1: _code("poll", 1, _asks(when)), 2: _code("work", at)}
    (asked,) = asked_of(codes, _One(text))
    assert asked["tid"] == 1
    assert f"`{when}`" in asked["name"]
    return [one["tid"] for one in asked["owed"]] == [2]


@pytest.mark.parametrize(
    ("when", "where", "body", "owes"),
    [
        ("ask() does not raise Gone and value", "page.title", "self.title = 'Shop'", True),
        ("ask() does not raise Gone and value", "page.title", "self.other = 1", False),
        ("jobs.popleft() does not raise IndexError", "1", "jobs.append(1)", True),
        ("jobs.popleft() does not raise IndexError", "1", "others.append(1)", False),
    ],
)
def test_a_question_that_may_raise_is_told_with_the_thread_that_answers_it(
    when: str, where: str, body: str, *, owes: bool
) -> None:
    way = PythonExit(line=1, way="return", when=when, where={"value": where}, foreign=True)
    loop = PythonLoop("poll", "app.py", 1, 2, (1,), "waits", (), (way,), (), 0.5)
    codes = {1: _code("poll", 1, loop), 2: _code("work", 2)}
    asked = asked_of(codes, _One(f"def work():\n    read()\n    {body}\n"))
    assert [[one["tid"] for one in each["owed"]] for each in asked] == ([[2]] if owes else [])


@pytest.mark.parametrize(
    ("when", "body"),
    [
        ("job.done", "read()\njob.done = True"),
        ("job.state == 2", "read()\nself.state = 2"),
        ("ready", "global ready\nread()\nready = True"),
        ("results['a']", "read()\nresults['a'] = compute()"),
        ("event.is_set()", "read()\nevent.set()"),
        ("jobs", "read()\njobs.append(1)"),
        ("job.done", "while True:\n    job.done = True\n    read()"),
    ],
)
def test_what_the_thread_can_still_come_to(when: str, body: str) -> None:
    assert owed(when, body, at=4 if body.startswith("while") else 2)


@pytest.mark.parametrize(
    ("when", "body", "at"),
    [
        ("job.done", "job.done = True\nread()", 3),
        ("job.done", "read()\njob.done = False", 2),
        ("ready", "read()\nready = True", 2),
        ("job.done", "read()\njob.other = True", 2),
        ("results['a']", "read()\nresults['b'] = 1", 2),
    ],
)
def test_past_code_and_other_objects_answer_nothing(when: str, body: str, at: int) -> None:
    assert not owed(when, body, at)


def test_what_a_thread_asks_between_two_sleeps_is_told_and_an_error_is_no_answer() -> None:
    when = "take(lock) does not raise OSError"
    taken = PythonExit(line=3, way="return", when=when, where={}, foreign=True)
    late = PythonExit(line=4, way="raise", when="late()", where={}, foreign=True)
    loop = PythonLoop("take", "app.py", 2, 9, (7,), "works", (), (taken, late), (), None)
    told = asks_between(5, loop)
    assert told is not None
    assert told["nobody"].endswith(f"at app.py:2, which ends when `{when}`")
    assert told["of_task"] == "unknown"
    only_error = PythonLoop("take", "app.py", 2, 9, (7,), "works", (), (late,), (), None)
    assert asks_between(5, only_error) is None


def test_a_thread_that_is_blocked_for_good_asks_nothing_until_then() -> None:
    """In a loop round a wait that the clock does not end, the wait is what keeps the thread."""
    text = "def poll():\n    while len(results) < 4:\n        done.wait()\n"
    wait = PythonFrame("Condition.wait", "/usr/lib/python3.11/threading.py", 320)
    code = _code("poll", 3, _asks("len(results) >= 4"))
    code = replace(code, frames=(wait, *code.frames))
    (asked,) = asked_of({1: code}, _One(text), {1})
    assert (asked["statement"], asked["blocks"]) == ("`done.wait()`", True)
    (asked,) = asked_of({1: code}, _One(text))
    assert not asked["blocks"]


@pytest.mark.parametrize(("line", "told"), [(7, 7), (0, None), (-4, None), (1 << 32, None)])
def test_a_line_that_no_file_has_is_not_told(line: int, told: int | None) -> None:
    """Code that a program makes may have any number there; the engine refuses such a line."""
    assert spot(PythonFrame("made", "app.py", line))["line"] == told


def test_of_a_wait_that_the_clock_ends_the_loop_around_it_is_told() -> None:
    blocked: AskedFields = {
        "tid": 5,
        "name": "`jobs.get()` (run at app.py:3)",
        "statement": "`jobs.get()`",
        "at": None,
        "owed": [],
        "nobody": "",
        "blocks": True,
        "tells_all": False,
    }
    told = in_loop(blocked, _asks("stopping.is_set()"))
    assert told["statement"] == "`jobs.get()`, in a loop that ends when `stopping.is_set()`"
    assert told["name"].endswith("app.py:3), in a loop that ends when `stopping.is_set()`")
    assert told["tells_all"]
    assert in_loop(blocked, None) == blocked
    owed: AskedFields = {**blocked, "owed": [{"tid": 6, "reason": "its work comes to put"}]}
    assert in_loop(owed, _asks("stopping.is_set()")) == owed
