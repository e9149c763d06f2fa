# SPDX-License-Identifier: MIT
"""The chain of ``why`` in words: the cause first, then each link, in at most six lines.

In: a report's links and root. Out: lines of pieces, each with its role, of which a screen, a page
and a plain text are made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from flagfinder.live.why_links import WhyLink, WhyNode, WhyRoot

Role = Literal["", "fault", "unknown", "waits", "place", "sure", "unsure"]
Line = list[tuple[str, Role]]

_MOST_LINES = 6
_KINDS = {
    "input": "waits for input",
    "peer": "waits for a peer",
    "timer": "waits for a timer",
    "unknown": "not known",
}
# What nobody will end: no good news. Their text names who it is.
_FAULTS = ("deadlock", "ended", "stopped", "frozen")
_MARKS = {"by-code": "by code"}
_SURE = ("seen", "proved")


def story(pid: int, chain: Sequence[WhyLink], root: WhyRoot) -> list[Line]:
    """The root, then the links from the first thread on; of long chains the middle is left out."""
    names = _Names(pid, chain, root)
    links = list(chain)
    # The last link may only repeat what the root says.
    own = links.pop() if links and _repeats(links[-1], root) else None
    room = _MOST_LINES - 1
    left = max(0, len(links) - room + 1) if len(links) > room else 0
    head, tail = (links, []) if not left else (links[:2], links[2 + left :])
    first = names.root(root, own)
    lines = [names.link(link, root) for link in head]
    if left:
        lines.append([(f".. {left} more links; --json has them all", "")])
    lines += [names.link(link, root) for link in tail]
    return [first, *lines]


def plain(lines: Iterable[Line]) -> list[str]:
    """The lines without roles."""
    return ["".join(text for text, _ in line) for line in lines]


def _repeats(link: WhyLink, root: WhyRoot) -> bool:
    is_own = (link.waiter.pid, link.waiter.tid) == (root.pid, root.tid)
    is_said = link.owed_by is None and link.reason == root.what
    return is_said and is_own and root.kind not in _FAULTS


class _Names:
    """How threads are called: by the least that tells them apart in this chain. A name is told once
    for each process, and again where a thread has another one.
    """

    def __init__(self, pid: int, links: Sequence[WhyLink], root: WhyRoot) -> None:
        owing = [link.owed_by for link in links if link.owed_by is not None]
        nodes = [*(link.waiter for link in links), *owing]
        pids = {node.pid for node in nodes} | {root.pid, pid}
        self._one_process = len(pids - {None}) == 1
        self._told: set[tuple[int, str]] = set()

    def _who(self, node: WhyNode, beside: int | None = None) -> str:
        """``beside``: the process that was just spoken of."""
        name = "" if (node.pid, node.name) in self._told or not node.name else f" ({node.name})"
        self._told.add((node.pid, node.name))
        if self._one_process or node.pid == beside:
            return f"thread {node.tid}{name}"
        if node.pid == node.tid:
            return f"process {node.pid}{name}"
        return f"thread {node.tid}{name} of process {node.pid}"

    def root(self, root: WhyRoot, own: WhyLink | None) -> Line:
        """The first line. ``own``: the last link, if it says the same."""
        role: Role = "waits"
        if root.kind in _FAULTS or root.kind == "unknown":
            role = "unknown" if root.kind == "unknown" else "fault"
        line: Line = [(f"{_KINDS.get(root.kind, root.kind)}: ", role)]
        node = root.node
        doubt: Line = [(" ", ""), ("[assumed]", "unsure")] if root.assumed else []
        if node is None or root.kind in _FAULTS:
            return [*line, (root.what, ""), *doubt]
        line.append((self._who(node), ""))
        at = own.at if own is not None else root.at
        if at is not None:
            line += [(" at ", ""), (str(at), "place")]
        # The time of a call says no more than that it is limited.
        if own is not None and own.kind != "timer":
            line.append((f" waits for {own.statement or own.name}", ""))
        mark = _mark(own) if own is not None and not doubt else doubt
        return [*line, (f": {root.what}", ""), *mark]

    def link(self, link: WhyLink, root: WhyRoot) -> Line:
        """``root``: its text is not repeated."""
        line: Line = [(self._who(link.waiter), "")]
        if link.at is not None:
            line += [(" at ", ""), (str(link.at), "place")]
        name = link.name if link.statement is None or link.at is None else link.statement
        line.append((f" waits for {name}", ""))
        if link.owed_by is not None:
            line.append((f", owed by {self._who(link.owed_by, link.waiter.pid)}", ""))
        # Within a process what is seen is the owner's id in the lock, or the like; of a child, that
        # it lives.
        owed = link.owed_by
        is_near = owed is not None and (link.kind == "child" or owed.pid == link.waiter.pid)
        if not (is_near and link.known == "seen") and link.reason != root.what:
            line.append((f": {link.reason}", ""))
        return [*line, *_mark(link)]


def _mark(link: WhyLink) -> Line:
    mark = f"[{_MARKS.get(link.known, link.known)}]"
    return [(" ", ""), (mark, "sure" if link.known in _SURE else "unsure")]
