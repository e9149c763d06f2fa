# SPDX-License-Identifier: MIT
"""The links of a chain of waits and its root, as the engine has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flagfinder.flags.code import Code
from flagfinder.shared.build import build
from flagfinder.shared.record import dataclass
from flagfinder.shared.spot import Spot, SpotFields

if TYPE_CHECKING:
    from flagfinder.live.fields import (
        LinkFields,
        NodeFields,
        RootFields,
        RootKind,
        WhyKind,
        WhyKnown,
    )


@dataclass(frozen=True)
class WhyNode:
    """A thread, or a ``task`` (`goroutine 7`) of a scheduler, one of whose threads it is then."""

    pid: int
    tid: int
    name: str
    task: str | None = None

    @property
    def place(self) -> tuple[int, int | str]:
        """What tells it from all others: names change."""
        return self.pid, self.task or self.tid

    @property
    def called(self) -> str:
        """Task or thread."""
        return self.task or f"thread {self.tid}"


@dataclass(frozen=True)
class WhyLink:
    """One step of the chain: ``waiter`` waits for what ``owed_by`` has not done; None where nobody
    is known to owe it.

    ``code`` writes the flag, or is where the thread that owes stands. ``address`` is that of a word
    in memory. ``stack`` is the waiter's, innermost first; ``at`` is the innermost place of the
    program's author in it. ``statement``: the name without its place, if it is one of a source.
    ``supposed``: what the copy of a thread that owes was told of its calls.
    """

    waiter: WhyNode
    kind: WhyKind
    name: str
    address: int | None
    owed_by: WhyNode | None
    code: Code | None
    known: WhyKnown
    reason: str
    stack: tuple[Code, ...]
    at: Spot | None = None
    statement: str | None = None
    supposed: tuple[str, ...] = ()


@dataclass(frozen=True)
class WhyRoot:
    """Where the chain ends. ``pid`` and ``tid`` are None where no process is known. ``at``: where
    that thread stands. ``note``: of a circle, why nobody is left to end it, where the links alone
    don't say that. ``assumed``: the chain comes there by a link that is not known.
    """

    kind: RootKind
    pid: int | None
    tid: int | None
    name: str
    what: str
    at: Spot | None = None
    note: str | None = None
    assumed: bool = False
    task: str | None = None

    @property
    def node(self) -> WhyNode | None:
        """The thread, if one is known."""
        if self.pid is None or self.tid is None:
            return None
        return WhyNode(self.pid, self.tid, self.name, self.task)


def _spot(raw: SpotFields | None) -> Spot | None:
    return None if raw is None else Spot.from_raw(raw)


def root_from_raw(raw: RootFields) -> WhyRoot:
    """Reads a ROOT object of the engine's JSON."""
    return build(WhyRoot, raw, at=_spot(raw.get("at")), assumed=raw.get("assumed", False))


def _node(raw: NodeFields) -> WhyNode:
    return WhyNode(raw["pid"], raw["tid"], raw["name"], raw.get("task"))


def link_from_raw(raw: LinkFields) -> WhyLink:
    """Reads a LINK object of the engine's JSON."""
    target, owed = raw["waits_for"], raw["owed_by"]
    return WhyLink(
        waiter=_node(raw["waiter"]),
        kind=target["kind"],
        name=target["name"],
        address=None if target["address"] is None else int(target["address"], 16),
        owed_by=_node(owed) if owed is not None else None,
        code=Code.from_raw(owed["code"]) if owed is not None and owed["code"] is not None else None,
        known=raw["known"],
        reason=raw["reason"],
        stack=tuple(Code.from_raw(item) for item in raw["stack"]),
        at=_spot(raw.get("at")),
        statement=target.get("statement"),
        supposed=tuple(raw.get("supposed", ())),
    )
