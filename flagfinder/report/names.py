# SPDX-License-Identifier: MIT
"""Text with styles as a terminal shows it: names shortened, in lines.

Only what a terminal shows is shortened: ``--json`` and ``--explain`` keep the names as they are.
"""

from __future__ import annotations

from rich.text import Text

from flagfinder.shared.short_names import short_name


def short_text(text: Text) -> Text:
    """The text with every name in it shortened, piece by piece."""
    bounds = sorted(
        {place for span in text.spans for place in (span.start, span.end)} - {0, len(text)}
    )
    short = Text(style=text.style)
    for piece in text.divide(bounds):
        shortened = short_name(piece.plain)
        short.append_text(piece if shortened == piece.plain else Text(shortened, _style(piece)))
    return short


def _style(piece: Text) -> str:
    styles = [str(span.style) for span in piece.spans]
    return " ".join(style for style in [str(piece.style), *styles] if style)


def wrapped(text: Text, width: int, indent: int) -> list[Text]:
    """The text in lines, parted at spaces; those behind the first leave room for ``indent``."""
    lines: list[Text] = []
    room = width
    while len(text) > room:
        space = text.plain.rfind(" ", indent if not lines else 0, room + 1)
        space = space if space > 0 else text.plain.find(" ", room)
        if space < 0:
            break
        lines.append(text[:space])
        text = text[space + 1 :]
        text = text[len(text.plain) - len(text.plain.lstrip()) :]
        room = width - indent
    return [*lines, text]
