# SPDX-License-Identifier: MIT
"""Text in pieces, each with its style, as a terminal shows it: names shortened, in lines.

Only what a terminal shows is shortened: ``--json`` and ``--explain`` keep the names as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flagfinder.shared.short_names import short_name

Piece = tuple[str, str]  # a text and its style, as rich names it; "": none


def short_pieces(pieces: Sequence[Piece]) -> list[Piece]:
    """The text with every name in it shortened, piece by piece."""
    return [(short_name(text), style) for text, style in pieces]


def wrapped(pieces: Sequence[Piece], width: int, indent: int) -> list[list[Piece]]:
    """The text in lines, parted at spaces; those behind the first leave room for ``indent``."""
    text = "".join(text for text, _ in pieces)
    lines: list[list[Piece]] = []
    start, room = 0, width
    while len(text) - start > room:
        space = text.rfind(" ", start + (0 if lines else indent), start + room + 1)
        space = space if space > start else text.find(" ", start + room)
        if space < 0:
            break
        lines.append(list(_part(pieces, start, space)))
        start = len(text) - len(text[space:].lstrip())
        room = width - indent
    return [*lines, list(_part(pieces, start, len(text)))]


def _part(pieces: Sequence[Piece], start: int, end: int) -> Iterator[Piece]:
    at = 0
    for text, style in pieces:
        if part := text[max(0, start - at) : max(0, end - at)]:
            yield part, style
        at += len(text)
