# SPDX-License-Identifier: MIT
"""What was announced while recording, and is kept in the trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flagfinder.shared.record import dataclass

if TYPE_CHECKING:
    from flagfinder.shared.fields import NoteFields, NoteLevel


@dataclass(frozen=True)
class Note:
    """``level`` is ``fallback`` (another way than the best was taken), ``lost`` or ``warning``."""

    level: NoteLevel
    text: str

    def as_fields(self) -> NoteFields:
        return {"level": self.level, "text": self.text}
