# SPDX-License-Identifier: MIT
"""The chain of ``why`` in words: the cause first, then each link, in at most six lines.

In: a report's links and root. Out: lines of pieces, each with its role, of which a screen, a page
and a plain text are made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from flagfinder.live.why_links import WhyLink, WhyNode, WhyRoot
from flagfinder.shared.spot import Spot

if TYPE_CHECKING:
    from flagfinder.live.fields import WhyKnown

Role = Literal["", "fault", "unknown", "waits", "place", "sure", "unsure"]
Line = list[tuple[str, Role]]

_MOST_LINES = 6
_KINDS = {
    "input": "waits for input",
    "peer": "waits for a peer",
    "timer": "waits for a timer",
    "lost-wakeup": "lost wake-up",
    "left-locked": "left locked",
    "unknown": "not known",
}
# What nobody will end: no good news. The text of the first names who it is.
_NAMED_FAULTS = ("deadlock", "ended", "stopped", "frozen")
_FAULTS = (*_NAMED_FAULTS, "lost-wakeup", "left-locked")
# How a link is known: as it is marked, and what that means.
_MARKS: dict[WhyKnown, tuple[str, str]] = {
    "seen": ("[seen]", "in the kernel or in memory"),
    "proved": ("[proved]", "a copy of the thread that owes did it"),
    "by-code": ("[by code]", "the program's code says so"),
    "by-reference": ("[by reference]", "its open calls refer to the object"),
    "assumed": ("[assumed]", "nobody else is left, or it is the usual one"),
}
_SURE = ("seen", "proved")
_MOST_NAMED = 3


def story(
    pid: int, chain: Sequence[WhyLink], root: WhyRoot, tests: Sequence[Spot | str] = ()
) -> list[Line]:
    """The root, the test that hangs if it is one, then the links from the first thread on, but a
    circle before what leads to it. Of long chains the middle is left out.
    """
    names = _Names(pid, chain, root)
    ring = circle(chain) if root.kind == "deadlock" else ()
    links = [*ring, *chain[: len(chain) - len(ring)]]
    # The last link may only repeat what the root says.
    own = links.pop() if links and _repeats(links[-1], root) else None
    room = _MOST_LINES - 1 - bool(tests)
    left = max(0, len(links) - room + 1) if len(links) > room else 0
    head, tail = (links, []) if not left else (links[:2], links[2 + left :])
    first = names.root(root, own, ring)
    lines = [names.link(link, root) for link in head]
    if left:
        lines.append([(f".. {left} more links; --json has them all", "")])
    lines += [names.link(link, root) for link in tail]
    return [first, *([_tests(tests)] if tests else []), *lines]


def _tests(tests: Sequence[Spot | str]) -> Line:
    names = list(dict.fromkeys(str(test) for test in tests))
    more = len(names) - _MOST_NAMED
    line: Line = [("test: " if len(names) == 1 else "tests: ", "waits")]
    line.append((", ".join(names[:_MOST_NAMED]), "place"))
    return [*line, (f" and {more} more", "")] if more > 0 else line


def circle(chain: Sequence[WhyLink]) -> tuple[WhyLink, ...]:
    """The links at the end of the chain that lead back to where they begin."""
    back = chain[-1].owed_by if chain else None
    for at, link in enumerate(chain):
        if back is not None and link.waiter.place == back.place:
            return tuple(chain[at:])
    return ()


def legend(chains: Iterable[tuple[Sequence[WhyLink], WhyRoot]]) -> str:
    """What the marks mean that the stories of these chains show; empty where there are none."""
    used = {known for links, root in chains for known in _shown(links, root)}
    return "; ".join(f"{mark}: {what}" for known, (mark, what) in _MARKS.items() if known in used)


def _shown(links: Sequence[WhyLink], root: WhyRoot) -> set[WhyKnown]:
    own = links[-1:] if links and _repeats(links[-1], root) else ()
    shown = {link.known for link in links[: len(links) - len(own)]}
    # A root that is assumed has that mark in place of its link's.
    return shown | ({"assumed"} if root.assumed else {link.known for link in own})


def plain(lines: Iterable[Line]) -> list[str]:
    """The lines without roles."""
    return ["".join(text for text, _ in line) for line in lines]


def _repeats(link: WhyLink, root: WhyRoot) -> bool:
    is_own = root.node is not None and link.waiter.place == root.node.place
    is_said = link.owed_by is None and link.reason == root.what
    return is_said and is_own and root.kind not in _NAMED_FAULTS


class _Names:
    """How threads are called: by the least that tells them apart in this chain. A name is told once
    for each process, and again where a thread has another one.
    """

    def __init__(self, pid: int, links: Sequence[WhyLink], root: WhyRoot) -> None:
        owing = [link.owed_by for link in links if link.owed_by is not None]
        nodes = [*(link.waiter for link in links), *owing]
        self._links = links
        self._followed = {link.waiter.place for link in links}
        self._followed |= {root.node.place} if root.node is not None else set()
        pids = {node.pid for node in nodes} | {root.pid, pid}
        self._one_process = len(pids - {None}) == 1
        self._told: set[tuple[int, str]] = set()

    def _who(self, node: WhyNode, beside: int | None = None) -> str:
        """``beside``: the process that was just spoken of."""
        name = "" if (node.pid, node.name) in self._told or not node.name else f" ({node.name})"
        self._told.add((node.pid, node.name))
        if self._one_process or node.pid == beside:
            return f"{node.called}{name}"
        if node.task is not None:
            return f"{node.task}{name} of process {node.pid}"
        if node.pid == node.tid:
            return f"process {node.pid}{name}"
        return f"thread {node.tid}{name} of process {node.pid}"

    def root(self, root: WhyRoot, own: WhyLink | None, ring: Sequence[WhyLink]) -> Line:
        """The first line. ``own``: the last link, if it says the same; ``ring``: a circle."""
        role: Role = "waits"
        if root.kind in _FAULTS or root.kind == "unknown":
            role = "unknown" if root.kind == "unknown" else "fault"
        line: Line = [(f"{_KINDS.get(root.kind, root.kind)}: ", role)]
        doubt: Line = [(" ", ""), ("[assumed]", "unsure")] if root.assumed else []
        if ring and root.note is None:
            return [*line, *self._circle(ring), *doubt]
        node = root.node
        if node is None or root.kind in _NAMED_FAULTS:
            return [*line, (root.what, ""), *doubt]
        line.append((self._who(node), ""))
        at = own.at if own is not None else root.at
        line += _at(at)
        does = [f"holds {lock}" for lock in self._held(node)]
        # The time of a call says no more than that it is limited.
        if own is not None and own.kind != "timer":
            does.append(f"waits for {own.statement or own.name}")
        if does:
            line.append((f"{_comma(at)} {' and '.join(does)}", ""))
        mark = _mark(own) if own is not None and not doubt else doubt
        return [*line, (f": {root.what}", ""), *mark]

    def _held(self, node: WhyNode) -> list[str]:
        """The locks of the chain that are seen to be this thread's."""
        locks = (link for link in self._links if link.kind == "lock" and link.known == "seen")
        owed = (link.name for link in locks if link.owed_by and link.owed_by.place == node.place)
        return list(dict.fromkeys(owed))

    def _circle(self, links: Sequence[WhyLink]) -> Line:
        line: Line = []
        more = max(0, len(links) - _MOST_NAMED)
        last = min(len(links), _MOST_NAMED) - 1
        for number, link in enumerate(links[:_MOST_NAMED]):
            if number:
                line.append((" and " if number == last and not more else ", ", ""))
            line.append((self._who(link.waiter), ""))
            if link.at is not None:
                line += [(" at ", ""), (str(link.at), "place")]
        if more:
            line.append((f" and {more} more", ""))
        alone = len(links) == 1
        return [*line, (" waits for itself" if alone else " wait for each other", "")]

    def link(self, link: WhyLink, root: WhyRoot) -> Line:
        """``root``: its text is not repeated."""
        line: Line = [(self._who(link.waiter), ""), *_at(link.at)]
        name = link.name if link.statement is None or link.at is None else link.statement
        line.append((f"{_comma(link.at)} waits for {name}", ""))
        if link.owed_by is not None:
            line.append((f", owed by {self._who(link.owed_by, link.waiter.pid)}", ""))
        if not self._is_plain(link) and link.reason != root.what:
            line.append((f": {link.reason}", ""))
        return [*line, *_mark(link)]

    def _is_plain(self, link: WhyLink) -> bool:
        """Whether the mark says enough. Within a process what is seen is the owner's id in the
        lock, or the like; of a child, that it lives. What a copy of a thread had to pass before it
        ended the wait is what the next line says of that thread.
        """
        owed = link.owed_by
        if owed is None:
            return False
        if link.known == "proved":
            return owed.place in self._followed
        is_near = link.kind == "child" or owed.pid == link.waiter.pid
        return is_near and link.known in ("seen", "by-reference")


_CALLED = (", called at ", ", from ", ", from ")


def _at(spot: Spot | None) -> Line:
    """Where a thread stands, and where its author called that: the mistake is often there."""
    if spot is None:
        return []
    line: Line = [(" at ", ""), (str(spot), "place")]
    for how, caller in zip(_CALLED, spot.callers, strict=False):
        line += [(how, ""), (str(caller), "place")]
    return line


def _comma(spot: Spot | None) -> str:
    return "," if spot is not None and spot.caller is not None else ""


def _mark(link: WhyLink) -> Line:
    return [(" ", ""), (_MARKS[link.known][0], "sure" if link.known in _SURE else "unsure")]
