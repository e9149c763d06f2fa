# SPDX-License-Identifier: MIT
"""What made up the time of a thread: what it did while it ran, and what those did meanwhile that it
waited for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from flagfinder.graph.graph import EventGraph
from flagfinder.shared.build import build
from flagfinder.shared.record import dataclass

if TYPE_CHECKING:
    from flagfinder.graph.path_fields import BlockedFields, CriticalPathFields

_MOST = 100_000


@dataclass(frozen=True)
class Inversion:
    """A less urgent thread had the lock that a more urgent one waited for.

    ``waiter`` and ``holder`` are the kernel's priorities, lower is more urgent. For ``starved`` ns
    the holder could have run but had no CPU; ``instead_tid`` (``instead``) is who had it most, None
    if the holder was not kept waiting.
    """

    waiter: int
    holder: int
    starved: int
    instead_tid: int | None
    instead: str | None


@dataclass(frozen=True)
class BlockedWait:
    """A wait on the path that another thread ended; times in ns. ``kind``: None where it is no
    lock, or not known.

    ``depth`` 0 are waits of the thread that was asked for. ``stack`` and ``wake_stack`` are call
    sites, innermost first: where it blocked, and where it was woken from. Empty without
    ``--stacks``.
    """

    tid: int
    thread: str
    start: int
    dur: int
    call: str | None
    target: str | None
    edge: str
    by_tid: int
    by_thread: str
    stack: tuple[str, ...]
    wake_stack: tuple[str, ...]
    kind: Literal["lock", "condition"] | None
    inversion: Inversion | None
    depth: int


@dataclass(frozen=True)
class PathShare:
    """How much of the path is a thread's: ``dur`` ns, of which ``run`` on a CPU."""

    tid: int
    thread: str
    dur: int
    run: int


@dataclass(frozen=True)
class CriticalPath:
    """See ``critical_path``. ``threads``: the largest part first. ``raw`` is what ``--json``
    prints: segments too.
    """

    tid: int
    thread: str
    start: int
    end: int
    threads: tuple[PathShare, ...]
    waits: tuple[BlockedWait, ...]
    raw: CriticalPathFields


def critical_path(
    graph: EventGraph,
    thread: int,
    start: int | None = None,
    end: int | None = None,
    most: int = _MOST,
    host: str | None = None,
) -> CriticalPath | None:
    """What made up the time of ``thread`` from ``start`` to ``end`` (ns, CLOCK_MONOTONIC; default:
    all of it).

    While it waited for another thread, the path is what that one did meanwhile, and so on.
    ``most``: how many segments are told at most (short ones are put together), and how many waits,
    the longest. ``host``: of the thread, in a graph of several hosts (None: the first that has it).
    None when there is no such thread.
    """
    raw = graph.critical_path_json(thread, start, end, most, host)
    if raw is None:
        return None
    return CriticalPath(
        raw["tid"],
        raw["thread"],
        raw["from"],
        raw["to"],
        tuple(PathShare(**share) for share in raw["threads"]),
        tuple(_wait(fields) for fields in raw["waits"]),
        raw,
    )


def _wait(fields: BlockedFields) -> BlockedWait:
    inversion = fields["inversion"]
    told = None if inversion is None else Inversion(**inversion)
    return build(BlockedWait, fields, inversion=told)
