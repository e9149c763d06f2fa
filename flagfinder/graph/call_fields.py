# SPDX-License-Identifier: MIT
"""JSON objects about system calls of one or two recordings: what ``compare`` prints, and calls of
which ``diagnose`` found that they bring nothing. Times are in ns. Imported for its types only.
"""

from __future__ import annotations

from flagfinder.flags.fields import AskedDescriptorFields
from flagfinder.shared.typed import TypedDict


class CallsFields(TypedDict):
    """How often, and for how long in all and at most. ``errors``: how often it failed, by the
    error's name (the engine's own: by its number); empty unless all calls were recorded.
    """

    count: int
    total: int
    longest: int
    errors: dict[str, int]


class ProfileRowFields(CallsFields):
    """Calls of one sort from one place. ``sampled``: the place is that of samples, and where
    several were found, numbers are in proportion.
    """

    call: str
    code: str
    sampled: bool


class ProfileFields(TypedDict):
    """The system calls of one recording, as the engine hands them over."""

    span: int
    syscalls: str
    command: list[str]
    lost: int
    rows: list[ProfileRowFields]


class CallDifferenceFields(TypedDict):
    """Calls of one sort by one function, which is empty where no stack was taken. ``ratio``: how
    many the bad run made for each of the good one's, null where that made none.
    """

    call: str
    code: str
    good: CallsFields
    bad: CallsFields
    ratio: float | None


class CompareFields(TypedDict):
    """Calls in two recordings; what differs most comes first."""

    good_span: int
    bad_span: int
    rows: list[CallDifferenceFields]
    lost: int
    notes: list[str]


class OpenedByFields(TypedDict):
    """A thread that made a descriptor, by a call at ``ts``."""

    tid: int
    thread: str
    call: str
    vertex: int
    ts: int


class HotFields(TypedDict):
    """A call that a thread repeated and that brought nothing: how often at least in a second on a
    CPU, and its last result. ``code`` is the function that makes it, as samples have it, empty
    without them. ``descriptors`` keep it coming back, as they were while it went on; ``opened_by``
    made the first, null where it was there before or that was not recorded.
    """

    call: str
    calls: int
    per_second: int
    result: int
    code: str
    descriptors: list[AskedDescriptorFields]
    opened_by: OpenedByFields | None
