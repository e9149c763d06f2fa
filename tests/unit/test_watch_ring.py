# SPDX-License-Identifier: MIT
"""The ring through which a watched program hands over its records."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

import pytest

from flagfinder.watch.ring import RECORD, RECORDS, Ring

_TAKEN, _READ, _FIRST = 4096, 4104, 8192


class Program:
    """Writes records as `frida_agents/tracer/src/ring.rs` does."""

    def __init__(self, ring: Ring) -> None:
        with Path(ring.path).open("r+b") as file:
            self.bytes = mmap.mmap(file.fileno(), 0)
        self.count = 0

    def begin(self) -> None:
        self.count += 1
        struct.pack_into("<Q", self.bytes, _TAKEN, self.count)

    def write(self) -> bytes:
        self.begin()
        place = _FIRST + (self.count - 1) % RECORDS * RECORD
        record = struct.pack("<QQ", 7, self.count).ljust(RECORD, bytes([self.count % 251]))
        self.bytes[place : place + RECORD] = record
        return record


def test_records_come_once_and_in_order() -> None:
    ring = Ring(b"config")
    program = Program(ring)
    assert program.bytes[:6] == b"config"
    for _ in range(3):
        written = b"".join(program.write() for _ in range(RECORDS // 2 + 1))
        assert ring.take() == written
        assert ring.take() == b""
        assert struct.unpack_from("<Q", program.bytes, _READ)[0] == program.count


def test_what_a_thread_has_begun_is_waited_for_until_the_process_has_ended() -> None:
    ring = Ring(b"")
    program = Program(ring)
    first = program.write()
    program.begin()
    last = program.write()
    assert ring.take() == first
    assert ring.take(is_over=True) == last


def test_what_a_program_wrote_before_its_end_is_taken_before_it_counts_as_over() -> None:
    ring = Ring(b"")
    program = Program(ring)
    written: list[bytes] = []

    def has_ended() -> bool:
        """As if the program wrote and ended just after it was seen to live."""
        is_over = len(written) == 2
        if not is_over:
            written.append(program.write())
        return is_over

    assert ring.wait(has_ended, 1) == (written[0], False)
    assert ring.wait(has_ended, 1) == (written[1], False)
    assert ring.wait(has_ended, 1) == (b"", True)


def test_a_wait_ends_when_its_time_is_over() -> None:
    assert Ring(b"").wait(lambda: False, 0.01) == (b"", False)


def test_a_program_that_writes_what_it_likes_holds_nobody_up() -> None:
    ring = Ring(b"")
    program = Program(ring)
    first = program.write()
    program.bytes[_TAKEN : _TAKEN + 8] = b"\xff" * 8
    assert ring.take(is_over=True) == first
    with Path(ring.path).open("r+b") as file, pytest.raises(PermissionError):
        file.truncate(0)
