# SPDX-License-Identifier: MIT
"""Who traps accesses in place of BPF: a debugger, or an agent in the process.

It hands over records of ``struct ff_watch_hit`` (``bpf/ff_watch.h``), and the engine makes the same
events of them as of BPF's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from flagfinder.shared.record import dataclass

if TYPE_CHECKING:
    from flagfinder.watch.fields import StartedFields


@dataclass(frozen=True)
class Word:
    """What a debug register is to cover."""

    address: int
    size: int
    reads: bool


def words_of(header: StartedFields) -> list[Word]:
    """The words of a watch, from its header."""
    words = [watched for watched in header["watches"] if watched["type"] == "word"]
    return [Word(int(w["address"], 16), w["size"], w["access"] == "read-write") for w in words]


class Trapper(Protocol):
    """Traps accesses from its creation on until ``stop``."""

    @property
    def over(self) -> bool:
        """Whether the process has ended, and all its records were taken."""

    @property
    def notes(self) -> list[str]:
        """What is not watched, and why, known so far."""

    @property
    def lost(self) -> int:
        """How many accesses found no room so far."""

    def take(self, patience: float) -> bytes:
        """The records since the last call; waits up to ``patience`` seconds for some."""

    def stop(self) -> bytes:
        """Lets go of the process; the records that were left. May be called twice."""
