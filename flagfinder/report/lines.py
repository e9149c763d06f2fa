# SPDX-License-Identifier: MIT
"""Lines that several reports have."""

from __future__ import annotations

from rich.text import Text

from flagfinder.report.terminal import Terminal

_LABEL_WIDTH = 11


def label_line(terminal: Terminal, label: str, body: Text) -> None:
    """One line of a report: what it is about, then what there is to say."""
    terminal.paragraph(
        Text(f"  {label:<{_LABEL_WIDTH}}", "bold").append_text(body), 2 + _LABEL_WIDTH
    )
