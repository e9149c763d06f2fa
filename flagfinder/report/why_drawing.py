# SPDX-License-Identifier: MIT
"""The drawing of a chain of waits, as SVG: processes, their threads, and arrows to who owes."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from flagfinder.live.why_chain import WhyReport
from flagfinder.live.why_html import html_text
from flagfinder.live.why_links import WhyLink, WhyNode
from flagfinder.shared.spot import Spot

# Heights of a line in a thread's box, of its edges, and below it; between two columns.
_LINE, _EDGES, _BELOW, _GAP = 20, 14, 28, 150
# Widths of a letter at most, and of a column without what is not for letters, on a narrow page.
_LETTER, _NARROW = 7.0, 256
_ALL, _LEAST = 1190, 320  # width that a page has for it, and of a column
_LEFT, _EDGE = 10, 44  # beside the columns; right of the last one are arrows
_COLORS = {
    "seen": "var(--known)",
    "proved": "var(--known)",
    "by-code": "var(--code)",
    "by-reference": "var(--code)",
    "assumed": "var(--assumed)",
}


class Drawing:
    """Processes are columns from left to right as the chain comes to them, threads are boxes. Where
    there are too many, or ``in_one_column``, they stand below each other, as broad as the page.
    """

    def __init__(self, report: WhyReport, *, in_one_column: bool = False) -> None:
        self._report = report
        self._threads: dict[int, list[WhyNode]] = {}
        for link in report.links:
            for node in (link.waiter, link.owed_by):
                if node is not None and node not in self._threads.setdefault(node.pid, []):
                    self._threads[node.pid].append(node)
        root = report.root
        if not self._threads and root.pid is not None:
            self._threads[root.pid] = [
                WhyNode(root.pid, root.tid or root.pid, root.name, root.task)
            ]
        count = max(1, len(self._threads))
        share = (_ALL - _LEFT - (count - 1) * _GAP - _EDGE) // count
        # Of the column that is as broad as the page the width is not known: 0.
        self._wide = 0 if in_one_column or share < _LEAST else share
        rows = max((len(nodes) for nodes in self._threads.values()), default=0)
        room = self._wide - 64 if self._wide else _NARROW
        nodes = [node for nodes in self._threads.values() for node in nodes]
        most = max((self._lines(node, room) for node in nodes), default=1)
        self._box = _EDGES + _LINE * most
        self._row = self._box + _BELOW
        self._frames: dict[int, tuple[int, int, int]] = {}  # left, top and height by process
        left, top = _LEFT, 4
        for pid, nodes in self._threads.items():
            height = (rows if self._wide else len(nodes)) * self._row + 24
            self._frames[pid] = (left, top, height)
            if self._wide:
                left += self._wide + _GAP
            else:
                top += height + 20

    @property
    def width(self) -> int:
        """In pixels, or 0: as broad as the page."""
        lefts = (left for left, _, _ in self._frames.values())
        return self._wide and max(lefts, default=0) + self._wide + _EDGE

    def svg(self) -> str:
        _, tops, heights = zip(*self._frames.values(), strict=True) if self._frames else 3 * [()]
        height = max(map(int.__add__, tops, heights), default=0) + 4
        name = f"tip-{self._wide}"
        arrows = (self._arrow(number, link, name) for number, link in enumerate(self._report.links))
        parts = [
            f'<svg width="{self.width or "100%"}" height="{height}" role="img">',
            f'<defs><marker class="tip" id="{name}" viewBox="0 0 10 10" refX="9" refY="5" '
            'markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L10 5L0 10z"/></marker>'
            "</defs>",
            *self._boxes(),
            *arrows,
            "</svg>",
        ]
        return "".join(parts)

    def _broad(self, less: int) -> str:
        """The width of what is by ``less`` narrower than a column, as a style."""
        if self._wide:
            return f'style="width:{self._wide - less}px"'
        return f'style="width:calc(100% - {_LEFT + _EDGE + less}px)"'

    def _boxes(self) -> Iterable[str]:
        root = self._report.root
        for pid, (left, top, height) in self._frames.items():
            nodes = self._threads[pid]
            name = next((node.name for node in nodes if node.tid == pid), nodes[0].name)
            yield (
                f'<rect class="process" x="{left}" y="{top}" {self._broad(0)} '
                f'height="{height}" rx="8"/>'
            )
            title = [("line dim", f"process {pid} ({name})")]
            yield _label(left + 12, top + 4, self._broad(24), 24, "process", title)
            for node in nodes:
                x, y = self._place(node)
                is_root = root.kind != "deadlock" and node == root.node
                kind = "thread root" if is_root else "thread"
                yield (
                    f'<rect class="{kind}" x="{x}" y="{y}" {self._broad(40)} '
                    f'height="{self._box}" rx="5"/>'
                )
                words = self._words(node)
                yield _label(x + 12, y + 6, self._broad(64), self._box - 12, kind, words)

    def _words(self, node: WhyNode) -> list[tuple[str, str]]:
        """What stands in its box: class and text."""
        at = self._where(node)
        caller = at.caller if at is not None else None
        return [
            ("line", f"{node.called} ({node.name})"),
            ("at", f"at {at}" if at is not None else ""),
            ("lines dim", f"called at {caller}" if caller is not None else ""),
            ("lines dim", self._does(node)),
        ]

    def _lines(self, node: WhyNode, room: int) -> int:
        """How many lines they take in so many pixels. The page cuts the first, and shows at most
        two of a place and three of others.
        """
        found = 1
        for name, text in self._words(node)[1:]:
            length = len(text) * _LETTER / room
            # Lines end where words do.
            wrapped = ceil(length) if length <= 1 else ceil(1.25 * length)
            found += min(2 if name == "at" else 3, wrapped)
        return found

    def _does(self, node: WhyNode) -> str:
        root = self._report.root
        of_node = (link for link in self._report.links if link.waiter == node)
        waits = next((link.statement or link.name for link in of_node), None)
        return waits or (root.kind if node == root.node else "")

    def _where(self, node: WhyNode) -> Spot | None:
        root = self._report.root
        places = [link.at for link in self._report.links if link.waiter == node]
        places += [root.at] if root.node == node else []
        return next((spot for spot in places if spot is not None), None)

    def _place(self, node: WhyNode) -> tuple[int, int]:
        left, top, _ = self._frames[node.pid]
        return left + 20, top + 34 + self._threads[node.pid].index(node) * self._row

    def _arrow(self, number: int, link: WhyLink, tip: str) -> str:
        if link.owed_by is None:
            return ""
        (x1, y1), (x2, y2) = self._place(link.waiter), self._place(link.owed_by)
        wide = self._wide - 40
        y1, y2 = y1 + self._box // 2, y2 + self._box // 2
        if x1 == x2:  # along the right side
            side = x1 + wide if self._wide else -_EDGE - 20  # from the right side of the page
            bend = side + 46 + min(8 * number, 24)
            path = f"M{side} {y1 - 6}C{bend} {y1},{bend} {y2},{side} {y2 + 6}"
        elif x1 < x2:
            path = f"M{x1 + wide} {y1}C{x1 + wide + 80} {y1},{x2 - 80} {y2},{x2} {y2}"
        else:
            path = (
                f"M{x1} {y1 + 10}C{x1 - 80} {y1 + 40},{x2 + wide + 80} {y2 + 40},{x2 + wide} "
                f"{y2 + 10}"
            )
        kind = "arrow" if self._wide else "arrow from-right"
        dash = ' stroke-dasharray="6 5"' if link.known == "assumed" else ""
        return (
            f'<g class="{kind}" data-link="{number}" tabindex="0"><path class="reach" d="{path}"/>'
            f'<path d="{path}" style="stroke:{_COLORS[link.known]}"{dash} '
            f'marker-end="url(#{tip})"/></g>'
        )


def _label(
    x: int, y: int, broad: str, height: int, kind: str, lines: Iterable[tuple[str, str]]
) -> str:
    """Words that the browser cuts with an ellipsis where they do not fit, and shows whole on hover.
    ``broad``: the style of the width; ``lines``: class and text.
    """
    shown = [(name, html_text(text)) for name, text in lines if text]
    whole = "&#10;".join(text for _, text in shown)
    words = "".join(f'<div class="{name}">{text}</div>' for name, text in shown)
    return (
        f'<foreignObject x="{x}" y="{y}" {broad} height="{height}">'
        f'<div class="label {kind}-label" title="{whole}">{words}</div></foreignObject>'
    )
