"""What was announced while recording, and is kept in the trace."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Note:
    """``level`` is ``fallback`` (another way than the best was taken), ``lost`` or ``warning``."""

    level: str
    text: str
