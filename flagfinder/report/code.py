"""A place in code, as every report shows it."""

from __future__ import annotations

from rich.text import Text

from flagfinder.flags import Code


def code_text(code: Code) -> Text:
    """The source line when it is known, then symbol and module + offset."""
    if code.source:
        return Text(code.source, "cyan").append(f"  {code}", "dim")
    return Text(str(code), "cyan")
