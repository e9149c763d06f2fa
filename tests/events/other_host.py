# SPDX-License-Identifier: MIT
"""Hosts as tests have them: network namespaces with a cable between them, and event files whose
clock is another host's.
"""

from __future__ import annotations

import contextlib
import json
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import xxhash
import zstandard
from harness import run, started

ADDRESSES = ("10.77.0.1", "10.77.0.2")
FILE_HEADER = 64
BLOCK = struct.Struct("<IHHIIQQQII")  # docs/events-format.md
EVENTS, STACKS = 2, 3
_TIMES = {"ts", "started"}


@contextlib.contextmanager
def two_hosts() -> Iterator[tuple[list[str], list[str]]]:
    """The beginnings of commands that run on either host; needs root."""
    with contextlib.ExitStack() as ends:
        holders = [
            ends.enter_context(
                started(
                    ["unshare", "--net", "sh", "-c", "echo; exec sleep 600"],
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for _ in ADDRESSES
        ]
        for holder in holders:
            assert holder.stdout is not None
            holder.stdout.readline()
        one, other = (holder.pid for holder in holders)
        _must(
            "ip",
            "link",
            "add",
            "cable",
            "netns",
            one,
            "type",
            "veth",
            "peer",
            "cable",
            "netns",
            other,
        )
        for holder, address in zip(holders, ADDRESSES, strict=True):
            inside = ("nsenter", "-t", holder.pid, "-n")
            _must(*inside, "ip", "address", "add", f"{address}/24", "dev", "cable")
            _must(*inside, "ip", "link", "set", "cable", "up")
        yield (
            ["nsenter", "-t", str(one), "-n"],
            ["nsenter", "-t", str(other), "-n"],
        )


def _must(*words: object) -> None:
    ran = run(words, timeout=30)
    assert ran.returncode == 0, ran.stderr


def _moved(value: Any, by: int, boot_id: str) -> Any:
    if isinstance(value, list):
        return [_moved(one, by, boot_id) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        name: one + by
        if name in _TIMES
        else boot_id
        if name == "boot_id"
        else _moved(one, by, boot_id)
        for name, one in value.items()
    }


def as_of_another_boot(path: Path, by: int, boot_id: str) -> None:
    """Rewrites an event file (of which nothing was lost) as a host would have written it whose
    monotonic clock is ``by`` ns ahead.
    """
    old = path.read_bytes()
    new, place = [old[:FILE_HEADER]], FILE_HEADER
    while place < len(old):
        magic, kind, cpu, count, raw, first, last, _, stored, _ = BLOCK.unpack_from(old, place)
        place += BLOCK.size
        payload = old[place : place + stored]
        place += stored
        if kind == EVENTS:
            first, last = first + by, last + by
        elif kind != STACKS:
            facts = json.loads(zstandard.decompress(payload, max_output_size=raw))
            text = json.dumps(_moved(facts, by, boot_id)).encode()
            payload, raw = zstandard.compress(text), len(text)
        head = (magic, kind, cpu, count, raw, first, last, xxhash.xxh3_64_intdigest(payload))
        unsealed = BLOCK.pack(*head, len(payload), 0)
        seal = xxhash.xxh3_64_intdigest(unsealed) & 0xFFFFFFFF
        new += [BLOCK.pack(*head, len(payload), seal), payload]
    path.write_bytes(b"".join(new))
