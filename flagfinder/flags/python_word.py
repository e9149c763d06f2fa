# SPDX-License-Identifier: MIT
"""The word of memory behind what a Python loop asks: the slot of an attribute, a variable or an
item.

In: the words that the engine saw decide in the interpreter's machine code, and the Python loop.
Out: the same words, first the one that holds what the loop asks. A slot holds the address of an
object, and ``True``, ``False`` and ``None`` are objects with symbols of their own: the one word
with such a value, asked in every round, is the one. Several, or a call in the expression (which may
ask words of its own), and nothing is said.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from flagfinder.flags.python_objects import SINGLETONS, holds_singleton, is_interpreters
from flagfinder.interpreters.python import PythonLoop
from flagfinder.shared.syntax import expression_of

if TYPE_CHECKING:
    from flagfinder.flags.fields import FlagFields

# Neither source is in doubt, but only the value shows that both mean the same word.
_CONFIDENCE = 0.7
_LONGEST = 1000  # characters of a condition that is looked into


def sort_words(
    flags: Sequence[FlagFields], considered: Sequence[FlagFields], loop: PythonLoop
) -> tuple[list[FlagFields], list[FlagFields]]:
    """``flags`` and ``considered`` anew, given the ``loop``, whose exits are an answer.

    The word that is asked comes first. The interpreter's own are no flags then, and where a single
    attribute, variable or item is asked, nothing else is.
    """
    when = _asked(loop)
    place = _place(when) if when is not None else None
    holders = [word for word in [*flags, *considered] if holds_singleton(word)]
    slot = holders[0] if place is not None and len(holders) == 1 else None
    kept = [
        flag for flag in flags if flag is not slot and place is None and not is_interpreters(flag)
    ]
    left = [word for word in [*flags, *considered] if word is not slot and word not in kept]
    first = [_named(slot, place, when)] if slot is not None and place is not None else []
    numbered: list[FlagFields] = [
        {**word, "rank": rank} for rank, word in enumerate([*first, *kept, *left], 1)
    ]
    return numbered[: len(first) + len(kept)], numbered[len(first) + len(kept) :]


def _asked(loop: PythonLoop) -> str | None:
    """The only way in which the loop is ended from outside."""
    asked = {way.when for way in loop.exits if way.foreign and way.way != "raise"}
    return asked.pop() if len(asked) == 1 else None


def _place(when: str) -> str | None:
    """The attribute, variable or item that the whole condition is about: ``job.done`` of ``not
    job.done``.
    """
    if len(when) > _LONGEST:
        return None
    try:
        node = expression_of(when)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # the condition comes from a trace, which may hold any text
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        node = node.operand
    if isinstance(node, ast.Compare) and all(
        isinstance(side, ast.Constant) for side in node.comparators
    ):
        node = node.left
    if not isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
        return None
    calls = any(isinstance(part, ast.Call | ast.Await | ast.Yield) for part in ast.walk(node))
    return None if calls else ast.unparse(node)


def _named(slot: FlagFields, place: str, when: str | None) -> FlagFields:
    held = SINGLETONS[slot["value"]["spin_symbol"]]
    # Only the address of an object may be written there.
    known = slot["value"]["exit_symbol"] in SINGLETONS
    why = [
        f"the Python loop asks only {place}, at all looks",
        "of the words that decide in the interpreter only this one holds True, False or None: "
        f"{held}",
    ]
    evidence = list(dict.fromkeys([*why, *slot["evidence"]]))
    return {
        **slot,
        "confidence": _CONFIDENCE,
        "standing": "by-code",
        "value": slot["value"] if known else {**slot["value"], "exit": None, "exit_symbol": None},
        "name": f"{place} ({slot['name']})",
        "access_path": place,
        "exit_when": when,
        "evidence": evidence,
    }
