# SPDX-License-Identifier: MIT
"""JSON objects that reports of several stages hold. Imported for its types only."""

from __future__ import annotations

from typing import Literal

from flagfinder.shared.typed import TypedDict

NoteLevel = Literal["fallback", "lost", "warning"]


class NoteFields(TypedDict):
    """Something that was announced while recording."""

    level: NoteLevel
    text: str


class CheckFields(TypedDict):
    """``works`` is null where it could not be told; ``fix`` is empty when it works."""

    name: str
    works: bool | None
    found: str
    fix: str
    serves: str
    optional: bool
