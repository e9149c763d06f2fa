# SPDX-License-Identifier: MIT
"""Event files that no recorder wrote: sound blocks that say what a test wants."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import xxhash
import zstandard
from other_host import BLOCK, EVENTS, FILE_HEADER

INFO, THREADS, END, FLOWS = 1, 4, 9, 13
SWITCH, WAKING, SENT, RECEIVED = 1, 2, 22, 23
_WORDS = {SWITCH: 1, WAKING: 1, SENT: 3, RECEIVED: 3}
_MAGIC, _VERSION = int.from_bytes(b"FFEB", "little"), 6
SLEEPS = 1
_INFO = {
    "recorder": "made up",
    "command": ["./app"],
    "pids": [7],
    "everything": False,
    "syscalls": "lazy",
    "stacks": "off",
    "stack_budget": 8,
    "contexts": True,
    "cpus": 2,
    "host": "shop",
    "boot_id": "boot",
    "network": True,
    "kernel": "6.8",
    "buffer_bytes": 1 << 20,
    "started": 0,
    "started_unix_ns": 1_700_000_000_000_000_000,
}


class Event(NamedTuple):
    """Thread ``a`` runs, ``b`` is the other one."""

    ts: int
    kind: int
    a: int
    b: int
    words: tuple[int, ...] = (0,)
    flags: int = 0


def sleeps(ts: int, tid: int) -> list[Event]:
    """It goes to sleep, and the CPU is idle."""
    return [Event(ts, SWITCH, tid, 0, flags=SLEEPS)]


def wakes(ts: int, tid: int) -> list[Event]:
    """It is woken by nobody, and runs."""
    return [Event(ts, WAKING, 0, tid), Event(ts, SWITCH, 0, tid)]


def block(kind: int, raw: bytes, count: int = 1, span: tuple[int, int] = (0, 0)) -> bytes:
    """A sound block."""
    payload = zstandard.compress(raw)
    head = (_MAGIC, kind, 0, count, len(raw), *span, xxhash.xxh3_64_intdigest(payload))
    unsealed = BLOCK.pack(*head, len(payload), 0)
    seal = xxhash.xxh3_64_intdigest(unsealed) & 0xFFFFFFFF
    return BLOCK.pack(*head, len(payload), seal) + payload


def facts(kind: int, what: Any) -> bytes:
    """A block of JSON."""
    return block(kind, json.dumps(what).encode())


def _planes(values: Sequence[int], count: int) -> bytes:
    return b"".join(bytes(value >> 8 * plane & 255 for value in values) for plane in range(count))


def events(*all_of: Event) -> bytes:
    """A block of events of one CPU, in order of time."""
    tids = sorted({tid for one in all_of for tid in (one.a, one.b)})
    number = {tid: place + 1 for place, tid in enumerate(tids)}
    times = [one.ts for one in all_of]
    since = [b - a for a, b in zip([times[0], *times], times, strict=False)]
    raw = struct.pack("<II", len(tids), 0) + struct.pack(f"<{len(tids)}I", *tids)
    raw += _planes(since, 4)
    raw += bytes(one.kind for one in all_of) + bytes(one.flags for one in all_of)
    raw += _planes([number[one.a] for one in all_of], 2)
    raw += _planes([number[one.b] for one in all_of], 2)
    for kind, words in sorted(_WORDS.items()):
        of_kind = [one.words for one in all_of if one.kind == kind]
        for word in range(words):
            raw += _planes([one[word] for one in of_kind], 8)
    return block(EVENTS, raw, len(all_of), (times[0], times[-1]))


def event_file(path: Path, *blocks: bytes, **info: Any) -> Path:
    """INFO, with what is said of it here, and the blocks."""
    header = b"FFEVENT\n" + struct.pack("<II", _VERSION, _VERSION)
    path.write_bytes(
        header.ljust(FILE_HEADER, b"\0") + facts(INFO, _INFO | info) + b"".join(blocks)
    )
    return path
