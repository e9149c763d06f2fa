# SPDX-License-Identifier: MIT
"""A place in a program, as its author knows it. The engine says which it is
(``core/code/src/own.rs``).
"""

from __future__ import annotations

from flagfinder.shared.record import dataclass
from flagfinder.shared.short_names import short_function
from flagfinder.shared.typed import NotRequired, TypedDict


class PlaceFields(TypedDict):
    """A place in code of the program's author. ``file`` is the path of the source; ``offset`` that
    in ``module``, null where an interpreter runs the code.
    """

    function: str | None
    file: str | None
    line: int | None
    module: str | None
    offset: str | None


class SpotFields(PlaceFields):
    """``called_at``: where the author's code called this function, up to three times."""

    called_at: NotRequired[SpotFields]


@dataclass(frozen=True)
class Spot:
    """``file`` is the path of the source; ``offset`` that in ``module``, None where an interpreter
    runs the code. ``called_at``: where the author's code called this function, if that is known.
    """

    function: str | None
    file: str | None
    line: int | None
    module: str | None
    offset: int | None
    called_at: Spot | None = None

    @classmethod
    def from_raw(cls, raw: SpotFields | PlaceFields) -> Spot:
        """Reads a SPOT object of the engine's JSON."""
        offset = raw["offset"]
        called_at: SpotFields | None = raw.get("called_at")  # type: ignore[assignment]
        return cls(
            raw["function"],
            raw["file"],
            raw["line"],
            raw["module"],
            None if offset is None else int(offset, 16),
            None if called_at is None else cls.from_raw(called_at),
        )

    @property
    def caller(self) -> Spot | None:
        """``called_at``, unless it is no news: beside a place that has a line, one that has none is
        what a compiler put around the program.
        """
        called_at = self.called_at
        is_news = called_at is not None and (called_at.file is not None or self.file is None)
        return called_at if is_news else None

    @property
    def callers(self) -> list[Spot]:
        """The innermost first."""
        return [] if self.caller is None else [self.caller, *self.caller.callers]

    def __str__(self) -> str:
        """`one() dead.c:5`; without lines `one() in dead`; without names `dead+0x1216`."""
        function = None if self.function is None else short_function(self.function)
        if self.file is not None:
            line = "" if self.line is None else f":{self.line}"
            place = f"{self.file.rpartition('/')[2]}{line}"
            return place if function is None else f"{function} {place}"
        if function is not None:
            return function if self.module is None else f"{function} in {self.module}"
        return f"{self.module}+{self.offset:#x}" if self.offset is not None else str(self.module)
