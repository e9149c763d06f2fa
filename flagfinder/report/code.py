# SPDX-License-Identifier: MIT
"""A place in code, as every report shows it."""

from __future__ import annotations

from rich.text import Text

from flagfinder.flags.code import Code
from flagfinder.shared.short_names import short_path

# Columns of a source file's path; the whole one is in ``--json``.
_PATH = 60


def code_text(code: Code) -> Text:
    """The source line when it is known, then symbol and module + offset."""
    if code.source:
        return Text(short_path(code.source, _PATH), "cyan").append(f"  {code}", "dim")
    return Text(str(code), "cyan")
