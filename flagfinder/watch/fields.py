# SPDX-License-Identifier: MIT
"""JSON objects of a watch, which ``docs/watch-format.md`` describes: what the engine is asked, and
what ``watch`` prints. Addresses and values are hex strings. Imported for its types only.
"""

from __future__ import annotations

from typing import Literal

from flagfinder.flags.fields import CodeFields
from flagfinder.shared.typed import NotRequired, TypedDict

Backend = Literal["perf", "lldb", "frida"]
Ending = Literal["until", "duration", "target-ended", "interrupted"]


class SymbolRequest(TypedDict):
    """A variable."""

    by: Literal["symbol"]
    module: str | None
    symbol: str
    size: int | None
    tid: int | None


class ExpressionRequest(TypedDict):
    """An access path."""

    by: Literal["expression"]
    module: str | None
    text: str
    size: int | None
    tid: int | None


class AddressRequest(TypedDict):
    """A run-time address."""

    by: Literal["address"]
    address: int
    size: int


class ModuleRequest(TypedDict):
    """An ELF virtual address in a module."""

    by: Literal["module"]
    module: str
    offset: int
    size: int


class TlsRequest(TypedDict):
    """An offset in a module's thread-local block of one thread."""

    by: Literal["tls"]
    module: str
    offset: int
    size: int
    tid: int


WordRequest = SymbolRequest | ExpressionRequest | AddressRequest | ModuleRequest | TlsRequest


class SiteRequest(TypedDict):
    """An instruction: its ELF virtual address in a module. ``follow``: its words are watched."""

    module: str
    offset: int
    follow: bool


# ``in`` is a word of Python's own, so this can't be written as a class.
HomeFields = TypedDict(
    "HomeFields",
    {
        "in": Literal["module", "heap", "tls", "thread-control", "frame", "mapping", "address"],
        "module": NotRequired[str],
        "offset": NotRequired[str | int],
        "site": NotRequired[CodeFields],
        "ordinal": NotRequired[int],
        "size": NotRequired[int],
        "tid": NotRequired[int],
        "function": NotRequired[CodeFields],
        "below_cfa": NotRequired[int],
        "path": NotRequired[str],
        "address": NotRequired[str],
    },
)
HomeFields.__doc__ = """
How to find the word again in a fresh run; what is said of it depends on what it lies ``in``.
"""


class DataFields(TypedDict):
    """A place in data."""

    kind: Literal[
        "global",
        "read-only",
        "linkage",
        "code",
        "heap",
        "tls",
        "thread-control",
        "stack",
        "shared",
        "file",
        "anonymous",
        "kernel",
        "unknown",
    ]
    name: str
    module: str | None
    offset: str | None
    symbol: str | None
    field: str | None
    near: str | None
    home: HomeFields


class WatchedWordFields(TypedDict):
    """A word, with its ``value`` at the start."""

    watch: int
    type: Literal["word"]
    name: str
    address: str
    size: int
    access: Literal["write", "read-write"]
    value: str | None
    data: DataFields


class WatchedSiteFields(TypedDict):
    """An instruction."""

    watch: int
    type: Literal["site"]
    name: str
    effect: Literal["read", "write", "update"]
    instruction: str
    size: int
    code: CodeFields


class StartedFields(TypedDict):
    """The header, as the engine hands it over."""

    schema: Literal["flagfinder.watch/1"]
    pid: int
    backend: Backend
    clock: str
    started: int
    started_unix_ns: int
    thinning: str
    watches: list[WatchedWordFields | WatchedSiteFields]


class HeaderFields(StartedFields):
    """The first line of ``--json-lines`` and of the file."""

    notes: list[str]


class EventFields(TypedDict):
    """An access. Which fields there are depends on what is known of it."""

    event: Literal["data_flag_write", "data_flag_read", "data_flag_access"]
    ts: int
    tid: int
    thread: str
    watch: int
    value: str | None
    previous: str | None
    value_from: NotRequired[Literal["instruction", "memory", "before", "after"]]
    reads: NotRequired[int]
    syscall: NotRequired[int]
    address: NotRequired[str]
    ref: NotRequired[str]
    cpu: int | None
    code: CodeFields
    stack: list[CodeFields]


class LostFields(TypedDict):
    """Accesses that found no room; CPUs that lost nothing are left out."""

    total: int
    cpus: dict[str, int]


class CountsFields(TypedDict):
    """The last line but for why the watch ended, as the engine hands it over."""

    event: Literal["end"]
    ts: int
    hits: int
    events: int
    writes: int
    reads: int
    crowded: int
    lost: LostFields


class EndFields(CountsFields):
    """The last line of ``--json-lines`` and of the file."""

    reason: Ending
    notes: list[str]


class WatchFields(HeaderFields):
    """Who read and wrote words. Times are in ns of ``clock``."""

    events: list[EventFields]
    end: EndFields
