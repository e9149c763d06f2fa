# SPDX-License-Identifier: MIT
"""What flagfinder raises. Every message has four parts, so that it can be acted upon.

``what`` failed, what was ``found``, how to ``fix`` it and what ``still_works`` meanwhile. The
engine raises the same classes (``bindings/src/errors.rs`` looks them up here by name).
"""

from __future__ import annotations


class FlagfinderError(Exception):
    """Base of all errors that flagfinder raises on purpose."""

    exit_code = 2
    otherwise = ""  # what still works, where nobody says it

    def __init__(self, what: str, found: str = "", fix: str = "", still_works: str = "") -> None:
        super().__init__(what, found, fix, still_works)
        self.what = what
        self.found = found
        self.fix = fix
        self.still_works = still_works or self.otherwise

    @property
    def hint(self) -> str:
        """How to go on: the fix, then what works without it. Empty when neither is known."""
        return "\n".join(part for part in (self.fix, self.still_works) if part)

    def __str__(self) -> str:
        return f"{self.what}: {self.found}" if self.found else self.what


class UsageError(FlagfinderError):
    """The request contradicts itself or names something that isn't there."""

    exit_code = 2
    otherwise = "Nothing was started or changed."


class TargetError(FlagfinderError):
    """The program to record can't be started."""

    exit_code = 2
    otherwise = "Nothing was started or changed."


class BadTraceError(FlagfinderError):
    """A trace file is no trace, is damaged beyond reading, or comes from a newer flagfinder."""

    exit_code = 65


class UnavailableError(FlagfinderError):
    """Something that flagfinder needs is not on this machine or does not work here."""

    exit_code = 69


class PermissionDeniedError(FlagfinderError):
    """The operating system refused."""

    exit_code = 77
    otherwise = "Nothing was started or changed."


class Interrupted(FlagfinderError):
    """Ctrl-C."""

    exit_code = 130
    otherwise = "What was written before is kept."
