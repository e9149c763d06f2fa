# SPDX-License-Identifier: MIT
"""The story of ``why`` as HTML: of its page, and of what a notebook shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from flagfinder.live.why_story import Line, Role
from flagfinder.shared.visible import visible

# A notebook may be dark or light: its own colour stays where a word is no fault.
_STYLES: dict[Role, str] = {
    "": "",
    "fault": "font-weight:600;color:#d1383f",
    "unknown": "font-weight:600;color:#9a6700",
    "waits": "font-weight:600",
    "place": "font-weight:600",
    "sure": "opacity:.7",
    "unsure": "color:#9a6700",
}


def html_text(text: str) -> str:
    """The text as HTML; control characters are shown."""
    return escape(visible(text))


def html_line(line: Line) -> str:
    """A line of the story; a page has a class for each role."""
    return "".join(
        f'<span class="{role}">{html_text(text)}</span>' if role else html_text(text)
        for text, role in line
    )


def notebook(lines: Sequence[Line], further: Iterable[str]) -> str:
    """The story and further lines, without a page's styles."""
    story = ["".join(map(_styled, line)) for line in lines]
    parts = [*story, *map(html_text, further)]
    return "".join(
        f'<div style="padding-left:{2 * bool(number)}em">{part}</div>'
        for number, part in enumerate(parts)
    )


def _styled(piece: tuple[str, Role]) -> str:
    text, role = piece
    return f'<span style="{_STYLES[role]}">{html_text(text)}</span>' if role else html_text(text)
