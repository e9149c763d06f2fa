# SPDX-License-Identifier: MIT
"""What CPython's machine code tells of the program that it runs: the words that hold its objects.

The evaluation loop reads many words in each round that are none of the program's: its own state,
and the types of objects, which it checks. ``True``, ``False`` and ``None`` are objects with symbols
of their own, so a word that holds one of them (of a variable, an attribute, an item) is known by
its value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from flagfinder import _core
from flagfinder.flags.loop_condition import of_first

if TYPE_CHECKING:
    from flagfinder.flags.fields import DiffFields, FlagFields, GroupFields

SINGLETONS: Mapping[str | None, str] = {
    "_Py_TrueStruct": "True",
    "_Py_FalseStruct": "False",
    "_Py_NoneStruct": "None",
}
_MODULE = re.compile(r"(lib)?python[23][\w.]*$")
_TYPE = re.compile(r"_?Py\w+_Type$")
_REFERENCE = 8
_EVALUATES = "_PyEval_EvalFrame"
_ASK_PYTHON = (
    "it is a Python program: where it hangs without being recorded, `flagfinder spin PID` reads "
    "its Python code, and names the loop and the expression that ends it"
)


def is_interpreters(word: FlagFields) -> bool:
    """Whether it is CPython's own state."""
    return word["kind"] == "global" and _MODULE.match(word["module"] or "") is not None


def holds_singleton(word: FlagFields) -> bool:
    """Whether it holds ``True``, ``False`` or ``None``."""
    return word["value"]["spin_symbol"] in SINGLETONS


def prefer_programs_words(report: DiffFields, *, has_code: bool = False) -> None:
    """Of a report whose loop is CPython's, puts the words that may be the program's first.

    Without one there is no flag: then the words are those that any Python program's loop reads.
    ``has_code``: the program's own code is known.
    """
    loop = report["loop"]
    if loop is None or not _MODULE.match(loop.get("module") or ""):
        return
    if not has_code:
        report["notes"].append(_ASK_PYTHON)
    if report["verdict"] != "data-flag" or not (loop.get("function") or "").startswith(_EVALUATES):
        return
    words: list[FlagFields] = [*report["flags"], *report["considered"]]
    ours = [
        word
        for word in words
        if not is_interpreters(word) and not _holds_type(word) and _fits(word)
    ]
    # The value of a class's attribute is read from the interpreter's cache.
    holders = [word for word in ours if holds_singleton(word)] or [
        word for word in words if holds_singleton(word)
    ]
    if len(holders) == 1:
        only = _only_holder(holders[0])
        ours = [only, *(word for word in ours if word is not holders[0])]
    flags = (
        [word for word in ours if word["confidence"] > 0]
        if ours and ours[0]["confidence"] >= _core.ENOUGH
        else []
    )
    named = {word["rank"] for word in flags}
    left = [word for word in words if word["rank"] not in named]
    ranks = {word["rank"]: rank for rank, word in enumerate([*flags, *left], 1)}
    numbered: list[FlagFields] = [{**word, "rank": ranks[word["rank"]]} for word in [*flags, *left]]
    report["flags"], report["considered"] = numbered[: len(flags)], numbered[len(flags) :]
    report["groups"] = regrouped(report["groups"], ranks, len(flags))
    report["condition"] = of_first(report["flags"])
    if not flags:
        report["verdict"] = "no-flag"
        report["reason"] = (
            "none of the words that decide in the Python interpreter is known as the program's"
        )
    elif flags[0]["rank"] != 1:
        report["reason"] = (
            f"the loop polls {flags[0]['name']}; it ends when {flags[0]['exit_when']}"
        )


def regrouped(groups: list[GroupFields], ranks: Mapping[int, int], flags: int) -> list[GroupFields]:
    """Groups name flags by their ranks: the new ones, of those that are flags still."""
    kept: list[GroupFields] = [
        {**group, "flags": sorted(ranks[rank] for rank in group["flags"])} for group in groups
    ]
    kept = [
        {**group, "flags": [rank for rank in group["flags"] if rank <= flags]} for group in kept
    ]
    return [group for group in kept if group["flags"]]


def _fits(word: FlagFields) -> bool:
    """Whether it has the size of a reference to an object, or of a length; bytecode and its caches
    have less.
    """
    return bool(word["size"] == _REFERENCE)


def _holds_type(word: FlagFields) -> bool:
    return _TYPE.match(word["value"]["spin_symbol"] or "") is not None


def _only_holder(word: FlagFields) -> FlagFields:
    held = SINGLETONS[word["value"]["spin_symbol"]]
    why = (
        "of the words that decide in the interpreter only this one holds True, False or None: "
        f"{held}"
    )
    return {
        **word,
        "confidence": max(word["confidence"], _core.INTERPRETER),
        "standing": word["standing"] if word["standing"] == "seen-in-good-run" else "by-code",
        "evidence": [why, *word["evidence"]],
    }
