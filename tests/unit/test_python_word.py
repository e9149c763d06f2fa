# SPDX-License-Identifier: MIT
"""Which of the interpreter's words is what a Python loop asks."""

from __future__ import annotations

from typing import Any, cast

import pytest

from flagfinder.flags.fields import FlagFields
from flagfinder.flags.python_word import sort_words
from flagfinder.interpreters.python import PythonExit, PythonLoop


def loop(*whens: str) -> PythonLoop:
    exits = tuple(PythonExit(1, "test", when, {}, True) for when in whens)
    return PythonLoop("wait", "x.py", 1, 2, (1,), "waits", (), exits, (), 0.8)


def word(name: str, holds: str | None = None, leaves: str | None = None, **more: Any) -> FlagFields:
    values = {"spin": "0x1000", "exit": "0x2000", "spin_symbol": holds, "exit_symbol": leaves}
    fields: Any = {
        "rank": 9,
        "confidence": 0.5,
        "standing": "unsure",
        "kind": "heap",
        "name": name,
        "module": None,
        "access_path": None,
        "exit_when": "value == 0x2000",
        "value": values,
        "evidence": ["read"],
        **more,
    }
    return cast(FlagFields, fields)


SLOT = word("slot", "_Py_FalseStruct", "_Py_TrueStruct")
TYPE = word("type", "PyLong_Type", "PyFloat_Type")
BREAKER = word("breaker", kind="global", module="python3.11")
OF_LIBRARY = word("ready", kind="global", module="_ready.cpython-311-x86_64-linux-gnu.so")


def names(words: list[FlagFields]) -> list[tuple[int, str]]:
    return [(word["rank"], word["name"]) for word in words]


@pytest.mark.parametrize(
    "when", ["job.done", "not job.running", "job.result is not None", "state['ready']", "stop"]
)
def test_the_slot_comes_first_and_the_interpreters_words_step_back(when: str) -> None:
    flags, considered = sort_words([BREAKER], [TYPE, SLOT], loop(when))
    place = when.removeprefix("not ").partition(" is ")[0]
    assert names(flags) == [(1, f"{place} (slot)")]
    assert names(considered) == [(2, "breaker"), (3, "type")]
    assert (flags[0]["exit_when"], flags[0]["access_path"]) == (when, place)
    assert flags[0]["value"]["exit"] == "0x2000"


def test_nothing_is_written_into_a_slot_that_is_no_object() -> None:
    (flag,), _ = sort_words([], [word("slot", "_Py_FalseStruct", "PyFloat_Type")], loop("job.done"))
    assert flag["value"]["exit"] is None and flag["value"]["exit_symbol"] is None


def test_two_slots_are_none() -> None:
    flags, considered = sort_words([], [SLOT, word("other", "_Py_NoneStruct")], loop("job.done"))
    assert not flags and names(considered) == [(1, "slot"), (2, "other")]


@pytest.mark.parametrize(
    "whens", [["job.is_done()"], ["job.parts[first()]"], ["job.done", "job.failed"], ["a.n > b.n"]]
)
def test_what_asks_more_than_one_thing_names_no_slot(whens: list[str]) -> None:
    flags, considered = sort_words([OF_LIBRARY, BREAKER], [SLOT], loop(*whens))
    assert names(flags) == [(1, "ready")], "a word of an extension may be what its function asks"
    assert names(considered) == [(2, "breaker"), (3, "slot")]
