# SPDX-License-Identifier: MIT
"""A place in code, as the engine tells of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flagfinder.shared.record import dataclass

if TYPE_CHECKING:
    from flagfinder.flags.fields import CodeFields


@dataclass(frozen=True)
class Code:
    """A place in code: ``module`` (file name) and ``offset`` in it outlive the run. Absent
    knowledge is None.

    ``near`` is, without a ``symbol``, the closest one before; it does not hold the place.
    """

    module: str | None
    offset: int | None
    symbol: str | None
    source: str | None
    near: str | None = None

    @classmethod
    def from_raw(cls, raw: CodeFields) -> Code:
        """Reads a CODE object of the engine's JSON."""
        return cls(
            raw.get("module"),
            parse_hex(raw.get("offset")),
            raw.get("symbol"),
            raw.get("source"),
            raw.get("near"),
        )

    def __str__(self) -> str:
        place = (
            f"{self.module}+{self.offset:#x}" if self.module and self.offset is not None else None
        )
        if self.symbol:
            return f"{self.symbol} ({place})" if place else self.symbol
        if place:
            return f"{place} (after {self.near})" if self.near else place
        return f"{self.offset:#x}" if self.offset is not None else "unknown code"


def parse_hex(text: str | int | None) -> int | None:
    """Offsets, addresses and values travel as hex strings: JSON readers lose integers past
    2**53.
    """
    if text is None or isinstance(text, int):
        return text
    return int(text, 16)
