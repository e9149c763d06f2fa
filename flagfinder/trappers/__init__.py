"""Who traps accesses in place of BPF: a debugger.

It hands over records of ``struct ff_watch_hit`` (``bpf/ff_watch.h``), and the engine makes the same events of them
as of BPF's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

_PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Word:
    """What a debug register is to cover."""

    address: int
    size: int
    reads: bool


def words_of(header: Mapping[str, Any]) -> list[Word]:
    """The words of a watch, from its header."""
    return [Word(int(w["address"], 16), w["size"], w["access"] == "read-write") for w in header["watches"]]


class Trapper(Protocol):
    """Traps accesses from its creation on until ``stop``."""

    @property
    def over(self) -> bool:
        """Whether the process has ended, and all its records were taken."""

    @property
    def notes(self) -> list[str]:
        """What is not watched, and why, known so far."""

    def take(self, patience: float) -> bytes:
        """The records since the last call; waits up to ``patience`` seconds for some."""

    def stop(self) -> bytes:
        """Lets go of the process; the records that were left. May be called twice."""


def shipped(folder: str, name: str) -> Path:
    """A script that comes with the package, or lies in the checkout."""
    for root in (_PACKAGE / "_tracer_sources", _PACKAGE.parent):
        path = root / folder / name
        if path.is_file():
            return path
    raise FileNotFoundError(f"{folder}/{name} is not installed")
