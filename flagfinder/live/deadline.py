# SPDX-License-Identifier: MIT
"""When an answer about a process is due, and how a report tells what the limit left no time for."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flagfinder.live.fields import SpinFields, WhyFields

DEFAULT_TIMEOUT = 30.0  # s, for one process
TREE_TIMEOUT = 60.0  # s, for all processes of a command


@dataclass(frozen=True)
class Deadline:
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


def not_asked(raw: SpinFields | WhyFields, because: str, what: str) -> None:
    """Adds to a report what was left out, and why."""
    raw["not_asked"].append(what)
    raw["notes"].append(note_on(because, what))


def note_on(because: str, what: str) -> str:
    """Tells what was left out, and why."""
    return f"not asked, as {because}: {what}"
