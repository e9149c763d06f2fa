# SPDX-License-Identifier: MIT
"""Which words of CPython's evaluation loop may be the program's."""

from __future__ import annotations

from typing import Any

from flagfinder.flags.python_objects import prefer_programs_words


def word(name: str, confidence: float, holds: str | None = None, **more: Any) -> dict[str, Any]:
    value = {"spin": "0x1000", "exit": "0x2000", "spin_symbol": holds, "exit_symbol": None}
    about = {
        "kind": "heap",
        "module": None,
        "address": {"spin": name},
        "exit_when": "value == 0x2000",
        "size": 8,
    }
    return {
        "rank": 9,
        "name": name,
        "confidence": confidence,
        "standing": "by-code",
        "value": value,
        "evidence": ["read"],
        **about,
        **more,
    }


LOCK = word("lock", 0.6, kind="global", module="python3.11")
TYPE = word("type", 0.6, "PyCFunction_Type")
LENGTH = word("length", 0.5)
SLOT = word("slot", 0.2, "_Py_FalseStruct")


def report(*words: dict[str, Any], **more: Any) -> Any:
    """One as the engine makes it: what has some confidence is a flag."""
    loop = {"module": "python3.11", "function": "_PyEval_EvalFrameDefault"}
    known: dict[str, Any] = {"verdict": "data-flag", "reason": "", "loop": loop, "notes": []}
    ranked = [{**word, "rank": rank} for rank, word in enumerate(words, 1)]
    flags = [word for word in ranked if word["confidence"] >= 0.4]
    groups = [{"exit_when": word["exit_when"], "flags": [word["rank"]]} for word in flags]
    left = [word for word in ranked if word not in flags]
    return {**known, "flags": flags, "considered": left, "groups": groups, **more}


def sorted_(found: Any) -> tuple[list[str], list[str]]:
    prefer_programs_words(found)
    ranks = [word["rank"] for word in [*found["flags"], *found["considered"]]]
    assert ranks == list(range(1, len(ranks) + 1))
    return [word["name"] for word in found["flags"]], [word["name"] for word in found["considered"]]


def test_the_only_slot_that_holds_an_answer_comes_first() -> None:
    found = report(LOCK, TYPE, LENGTH, SLOT)
    assert sorted_(found) == (["slot", "length"], ["lock", "type"])
    assert found["flags"][0]["confidence"] == 0.6 and "False" in found["flags"][0]["evidence"][0]
    assert [group["flags"] for group in found["groups"]] == [[2]], "of the length"
    assert "polls slot" in found["reason"] and "flagfinder spin PID" in found["notes"][0]


def test_a_counter_in_bytecode_is_no_word_of_the_programs() -> None:
    assert sorted_(report(word("counter", 0.6, size=2), LENGTH)) == (["length"], ["counter"])


def test_neither_of_two_slots_is_preferred() -> None:
    other = word("other", 0.45, "_Py_NoneStruct")
    assert sorted_(report(LENGTH, other, SLOT))[0] == ["length", "other", "slot"]


def test_a_slot_of_the_interpreters_cache_counts_where_there_is_no_other() -> None:
    cache = {**LOCK, "name": "cache", "address": {"spin": "cache"}, "value": SLOT["value"]}
    assert sorted_(report(LOCK, cache))[0] == ["cache"]
    assert sorted_(report(LOCK, cache, SLOT))[0] == ["slot"]


def test_without_a_word_of_the_programs_there_is_no_flag() -> None:
    found = report(LOCK, TYPE, word("small", 0.3))
    assert sorted_(found) == ([], ["lock", "type", "small"])
    assert found["verdict"] == "no-flag" and not found["groups"]


def test_what_is_not_the_evaluation_loop_stays_as_it_is() -> None:
    of_lock = report(LOCK, TYPE, loop={"module": "python3.11", "function": "take_gil"})
    prefer_programs_words(of_lock)
    assert [word["name"] for word in of_lock["flags"]] == ["lock", "type"] and of_lock["notes"]
    found = report(LOCK, loop={"module": "libc.so.6", "function": "_PyEval_EvalFrameDefault"})
    prefer_programs_words(found)
    assert [word["name"] for word in found["flags"]] == ["lock"] and not found["notes"]
    none = report(SLOT, verdict="no-flag")
    prefer_programs_words(none)
    assert not none["flags"] and none["notes"]
