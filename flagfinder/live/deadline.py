# SPDX-License-Identifier: MIT
"""When an answer about a process is due, what is heard until then, and how a report tells what the
limit left no time for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from flagfinder.live.fields import SpinFields, WhyFields

DEFAULT_TIMEOUT = 30.0  # s, for one process
TREE_TIMEOUT = 60.0  # s, for all processes of a command
DEFAULT_BUDGET = 0.8  # s for which a thread is held
DEFAULT_CORE_BUDGET = 5.0  # s for which the copy of a thread of a core goes on


class Deadline(NamedTuple):
    """The time limit of a question, and its end on the monotonic clock."""

    limit: float
    end: float

    @classmethod
    def after(cls, limit: float) -> Deadline:
        """From now on."""
        return cls(limit, time.monotonic() + limit)

    @property
    def left(self) -> float:
        return max(0.0, self.end - time.monotonic())

    @property
    def is_over(self) -> bool:
        return self.left == 0.0

    @property
    def over(self) -> str:
        """Why something was left out."""
        return f"the time limit of {self.limit:g} s was over"

    @property
    def for_engine(self) -> tuple[float, float]:
        """The whole limit, which is told, and what is left of it."""
        return self.limit, self.left


def hearer(
    told: Callable[[int, list[int]], object] | None, so_far: Callable[[str], object] | None
) -> Callable[[int, list[int], str | None], object]:
    """What the engine calls: with threads that are about to be looked at, or with JSON of the
    report so far.
    """

    def hear(threads: int, stepped: list[int], report: str | None) -> None:
        if report is None and told is not None:
            told(threads, stepped)
        if report is not None and so_far is not None:
            so_far(report)

    return hear


def not_asked(raw: SpinFields | WhyFields, because: str, what: str) -> None:
    """Adds to a report what was left out, and why."""
    raw["not_asked"].append(what)
    raw["notes"].append(note_on(because, what))


def note_on(because: str, what: str) -> str:
    """Tells what was left out, and why."""
    return f"not asked, as {because}: {what}"
