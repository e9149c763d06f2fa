# SPDX-License-Identifier: MIT
"""What ``--json`` prints of a failure. Imported for its types only."""

from __future__ import annotations

from flagfinder.shared.typed import TypedDict


class ErrorPartsFields(TypedDict):
    """What failed, what was found, how to mend it, and what works meanwhile."""

    what: str
    found: str
    fix: str
    still_works: str


class ErrorFields(TypedDict):
    """A failure, and the exit code of the command."""

    error: ErrorPartsFields
    exit_code: int
