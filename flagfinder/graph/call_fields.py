# SPDX-License-Identifier: MIT
"""JSON objects about system calls of one or two recordings: what ``compare`` prints. Times are in
ns. Imported for its types only.
"""

from __future__ import annotations

from typing import TypedDict


class CallsFields(TypedDict):
    """How often, and for how long in all and at most. ``errors``: how often it failed, by the
    error's name (the engine's own: by its number); empty unless all calls were recorded.
    """

    count: int
    total: int
    longest: int
    errors: dict[str, int]


class ProfileRowFields(CallsFields):
    """Calls of one sort from one place."""

    call: str
    code: str


class ProfileFields(TypedDict):
    """The system calls of one recording, as the engine hands them over."""

    span: int
    syscalls: str
    command: list[str]
    lost: int
    rows: list[ProfileRowFields]


class CallDifferenceFields(TypedDict):
    """Calls of one sort by one function, which is empty where no stack was taken."""

    call: str
    code: str
    good: CallsFields
    bad: CallsFields


class CompareFields(TypedDict):
    """Calls in two recordings; what differs most comes first."""

    good_span: int
    bad_span: int
    rows: list[CallDifferenceFields]
    lost: int
    notes: list[str]
