# SPDX-License-Identifier: MIT
"""JSON objects about recordings of many hosts. Times are in ns. Imported for its types only."""

from __future__ import annotations

from flagfinder.shared.typed import TypedDict


class IngestedFields(TypedDict):
    """A recording that was taken in: rows by table."""

    file: str
    host: str
    waits: int
    sends: int


class HostsIngestFields(TypedDict):
    """What was taken into a folder."""

    folder: str
    recordings: list[IngestedFields]


class HostsTopRow(TypedDict):
    """Waits of threads of one name in one call (``""``: in none)."""

    host: str
    thread: str
    call: str
    count: int
    total: int
    longest: int


class HostsTopFields(TypedDict):
    """The most time first."""

    rows: list[HostsTopRow]


class HostsWaitsRow(TypedDict):
    """Waits of threads of one name that those of another name ended."""

    host: str
    thread: str
    by_host: str
    by_thread: str
    count: int
    total: int
    longest: int


class HostsWaitsFields(TypedDict):
    """The most time first."""

    rows: list[HostsWaitsRow]


class HostsShareRow(TypedDict):
    """What threads of one name did while others waited for it: ``runs`` (or could), a wait that no
    thread is known to have ended, by its call and what ended it, or ``unknown``: it was not
    recorded.
    """

    host: str
    thread: str
    what: str
    total: int


class HostsShareFields(TypedDict):
    """The most time first. ``whole`` is the time that is explained."""

    whole: int
    rows: list[HostsShareRow]
