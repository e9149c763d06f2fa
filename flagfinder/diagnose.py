"""From a hang to the thread that is to blame for it, by the event graph (seed 000, Algorithm 1), answered by rule.

A wait is compared with a similar one that went well; the threads that woke that one, and did something else this time,
are the culprits, and theirs in turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from flagfinder.graph import EventGraph

HangClass = Literal["LongRunning", "RepeatedYield", "LongWait"]


@dataclass(frozen=True)
class Culprit:
    """A thread that did something unusual while others waited for it.

    ``start`` and ``dur`` in ns (CLOCK_MONOTONIC); ``doing`` in words; ``depth`` is how far from the hang it is, 0 the
    hang itself; ``stack``: call sites where it blocked, innermost first (of one that computed, where it did in the
    end); empty without ``--stacks``.
    """

    vertex: int
    tid: int
    pid: int
    thread: str
    hang_class: HangClass
    start: int
    dur: int
    doing: str
    depth: int
    stack: tuple[str, ...]


@dataclass(frozen=True)
class Diagnosis:
    """What is known about a hang. ``culprits``: the root cause first. ``circular``: they wait for each other.

    ``raw`` is what ``--json`` prints: path, baseline, advice and losses too.
    """

    hang_class: HangClass
    tid: int
    thread: str
    doing: str
    start: int
    dur: int
    culprits: tuple[Culprit, ...]
    circular: bool
    advice: tuple[str, ...]
    raw: dict[str, Any]


def diagnose(graph: EventGraph, thread: int | None = None, at: int | None = None) -> Diagnosis | None:
    """Explains the hang of ``thread`` at the time ``at`` (ns, CLOCK_MONOTONIC).

    Without ``thread``, of the main thread of what was recorded; without ``at``, the last mark, else the most unusual
    stretch. None when no thread did anything for a millisecond, or there is no such thread.
    """
    raw = graph.diagnose_json(thread, at)
    if raw is None:
        return None
    culprits = tuple(_culprit(**fields) for fields in raw["culprits"])
    return Diagnosis(
        raw["class"],
        raw["thread"]["tid"],
        raw["thread"]["thread"],
        raw["doing"],
        raw["start"],
        raw["dur"],
        culprits,
        raw["circular"],
        tuple(raw["advice"]),
        raw,
    )


def _culprit(stack: list[str], **fields: Any) -> Culprit:
    hang_class = fields.pop("class")
    return Culprit(hang_class=hang_class, stack=tuple(stack), **fields)
