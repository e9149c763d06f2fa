# SPDX-License-Identifier: MIT
"""What would end a loop, as the program tests it: `p->n >= p->want or p->closed != 0x0`.

The engine owns this type (``core/flags``). Where Python code tells what its loop asks, that takes
the place of what the interpreter tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flagfinder.flags.code import parse_hex
from flagfinder.shared.build import build
from flagfinder.shared.record import dataclass

if TYPE_CHECKING:
    from flagfinder.flags.fields import FlagFields, LoopConditionFields, LoopPartFields
    from flagfinder.interpreters.python import PythonLoop


@dataclass(frozen=True)
class LoopPart:
    """One test that would end the loop. ``flag`` is the rank of its likeliest flag, None where only
    code tells of it; ``value`` is what that word holds; ``owed`` are ids of threads.
    """

    text: str
    flag: int | None
    value: int | None
    owed: tuple[int, ...]
    tests_more: bool


@dataclass(frozen=True)
class LoopCondition:
    """All tests that would end the loop, the likeliest first. ``text`` joins them by "or"."""

    text: str
    parts: tuple[LoopPart, ...]

    @classmethod
    def from_raw(cls, raw: LoopConditionFields) -> LoopCondition:
        """Reads a CONDITION object of the JSON."""
        parts = (build(LoopPart, part, value=parse_hex(part["value"])) for part in raw["parts"])
        return cls(raw["text"], tuple(parts))


def of_python(loop: PythonLoop, flags: Sequence[FlagFields]) -> LoopConditionFields:
    """What a Python loop asks; of the flags the first may be its word."""
    return _joined([_part(when, flags) for when in loop.questions])


def of_first(flags: Sequence[FlagFields]) -> LoopConditionFields | None:
    """What the first flag alone tells."""
    return _joined([_part(flags[0]["exit_when"] or "it changes", flags)]) if flags else None


def _part(text: str, flags: Sequence[FlagFields]) -> LoopPartFields:
    word = flags[0] if flags and flags[0]["exit_when"] == text else None
    return {
        "text": text,
        "flag": word["rank"] if word else None,
        "word": word["name"] if word else None,
        "operator": None,
        "value": word["value"]["spin"] if word else None,
        "standing": word["standing"] if word else "by-code",
        "owed": [owed["tid"] for owed in word.get("owed", ())] if word else [],
        "tests_more": False,
    }


def _joined(parts: list[LoopPartFields]) -> LoopConditionFields:
    return {"text": " or ".join(part["text"] for part in parts), "parts": parts, "joined": "or"}
