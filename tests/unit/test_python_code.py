# SPDX-License-Identifier: MIT
"""What the Python code that a trace keeps says of the interpreter's words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flagfinder import _core
from flagfinder.flags.python_code import add_code, code_of
from flagfinder.interpreters.python import PythonCode, PythonExit, PythonLoop

SLOT = ("slot", "_Py_FalseStruct", None)
NUMBER = ("number", None, None)
BREAKER = ("breaker", None, "python3.11")


def word(rank: int, name: str, holds: str | None, module: str | None) -> dict[str, Any]:
    return {
        "rank": rank,
        "confidence": 0.5,
        "kind": "heap" if module is None else "global",
        "name": name,
        "module": module,
        "address": {"spin": name, "normal": None},
        "size": 8,
        "access_path": None,
        "exit_when": "value == 0x2000",
        "value": {"spin": "0x1", "exit": "0x2", "spin_symbol": holds, "exit_symbol": None},
        "evidence": ["read"],
        "owed": [],
        "owed_by_nobody": None,
    }


def report(*words: tuple[str, str | None, str | None]) -> Any:
    """As the engine makes it: all words are flags, each by a branch of its own."""
    flags = [word(rank, *about) for rank, about in enumerate(words, 1)]
    return {
        "verdict": "data-flag",
        "reason": "",
        "flags": flags,
        "considered": [],
        "groups": [{"exit_when": flag["name"], "flags": [flag["rank"]]} for flag in flags],
        "notes": [_core.OF_INTERPRETER, "another note"],
    }


def code(when: str | None, confidence: float | None = 0.8) -> PythonCode:
    exits = () if when is None else (PythonExit(7, "test", when, {}, True),)
    loop = PythonLoop("run", "box.py", 7, 8, (8,), "waits", (), exits, (), confidence)
    return PythonCode(6, 6, 0, (), loop, None)


def told(found: Any) -> tuple[str, list[tuple[int, str]], list[tuple[int, str]]]:
    ranks = [
        [(word["rank"], word["name"]) for word in found[key]] for key in ("flags", "considered")
    ]
    return found["verdict"], ranks[0], ranks[1]


def test_the_word_that_the_loop_asks_for_gets_its_name() -> None:
    found = report(BREAKER, SLOT)
    add_code(found, code("Box.done"))
    assert told(found) == ("data-flag", [(1, "Box.done (slot)")], [(2, "breaker")])
    assert found["flags"][0]["exit_when"] == "Box.done"
    assert found["groups"] == [{"exit_when": "slot", "flags": [1]}]
    assert found["notes"] == ["another note"]


def test_a_number_that_both_runs_tell_of_stays_and_the_interpreters_word_goes() -> None:
    found = report(BREAKER, NUMBER)
    add_code(found, code("job.number > 2"))
    assert told(found) == ("data-flag", [(1, "number")], [(2, "breaker")])
    found = report(BREAKER)
    add_code(found, code("event.is_set()"))
    assert told(found) == ("no-flag", [], [(1, "breaker")])
    assert found["groups"] == []


def test_a_loop_that_tells_nothing_sure_changes_nothing() -> None:
    found = report(BREAKER, SLOT)
    add_code(found, code("Box.done", confidence=None))
    assert told(found) == ("data-flag", [(1, "breaker"), (2, "slot")], [])
    assert found["python"]["loop"]["exits"][0]["when"] == "Box.done"


@pytest.mark.parametrize(
    "raw",
    [
        7,
        {},
        {"frames": "text"},
        {"looks": 1, "seen": 1, "gil": 0, "frames": [{"function": 1}], "loop": None, "note": None},
        {"looks": 1, "seen": 1, "gil": 0, "frames": [], "loop": {"kind": "waits"}, "note": None},
    ],
)
def test_a_trace_may_hold_anything(raw: object) -> None:
    assert code_of({"5": raw}, 5) is None


def test_the_code_of_a_thread_is_found_by_its_id() -> None:
    raw = json.loads(json.dumps(code("Box.done").to_raw()))
    assert code_of({"5": raw}, 5) is not None
    assert code_of({"5": raw}, 6) is None


@pytest.mark.parametrize("when", ["(" * 400, "-" * 5000 + "x", "x ==", "\0", "x" * 1001])
def test_an_expression_that_makes_no_sense_names_nothing(when: str) -> None:
    found = report(BREAKER, SLOT)
    add_code(found, code(when))
    assert all(word["access_path"] is None for word in found["flags"])
