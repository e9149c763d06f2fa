# SPDX-License-Identifier: MIT
"""The report of ``why``: the chain of waits and its end, as the engine has it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from flagfinder.flags.flags import Code
from flagfinder.shared.build import build, check_schema
from flagfinder.shared.visible import visible

if TYPE_CHECKING:
    from flagfinder.live.fields import (
        LinkFields,
        NodeFields,
        RootKind,
        WhyFields,
        WhyKind,
        WhyKnown,
    )


@dataclass(frozen=True)
class WhyNode:
    pid: int
    tid: int
    name: str


@dataclass(frozen=True)
class WhyLink:
    """One step of the chain: ``waiter`` waits for what ``owed_by`` has not done; None where nobody
    is known to owe it.

    ``code`` writes the flag, or is where the thread that owes stands. ``address`` is that of a word
    in memory. ``stack`` is the waiter's, innermost first.
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


@dataclass(frozen=True)
class WhyRoot:
    """Where the chain ends. ``pid`` and ``tid`` are None where no process is known."""

    kind: RootKind
    pid: int | None
    tid: int | None
    name: str
    what: str


@dataclass(frozen=True)
class WhyReport:
    """What ``flagfinder why`` found. ``not_asked`` lists what the time limit left no time for.
    ``raw`` is the JSON object it was made from.
    """

    pid: int
    source: Literal["live", "core", "recordings"]
    program: str
    story: tuple[str, ...]
    links: tuple[WhyLink, ...]
    root: WhyRoot
    next: tuple[str, ...]
    notes: tuple[str, ...]
    not_asked: tuple[str, ...]
    raw: WhyFields = field(repr=False, compare=False)

    @classmethod
    def from_json(cls, text: str) -> WhyReport:
        """Reads the object that ``flagfinder why --json`` prints. Raises ValueError on another
        schema.
        """
        return cls.from_raw(json.loads(text))

    @classmethod
    def from_raw(cls, raw: WhyFields) -> WhyReport:
        """The same of the object itself."""
        check_schema(raw, "flagfinder.why/1")
        return build(
            cls,
            raw,
            source=raw.get("source", "live"),  # older reports have none
            links=tuple(_link(item) for item in raw["links"]),
            root=WhyRoot(**raw["root"]),
            not_asked=tuple(raw.get("not_asked", ())),
            raw=raw,
        )

    @property
    def found(self) -> bool:
        """Whether the end of the chain is known."""
        return self.root.kind != "unknown"


def why_text(report: WhyReport) -> str:
    """The report as plain text."""
    lines = [*report.story, *report.notes, *(f"next: {command}" for command in report.next)]
    return "\n".join(visible(line) for line in [f"process {report.pid} ({report.program})", *lines])


def _node(raw: NodeFields) -> WhyNode:
    return WhyNode(raw["pid"], raw["tid"], raw["name"])


def _link(raw: LinkFields) -> WhyLink:
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
    )
