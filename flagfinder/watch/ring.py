# SPDX-License-Identifier: MIT
"""The records that threads of a watched program hand over themselves.

``frida_agents/tracer/src/watch.rs`` writes and describes it: the configuration, a page of counts,
then records, each whole once its ``sequence`` is its number from 1.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import time
from collections.abc import Callable

RECORD = 736  # struct ff_watch_hit
RECORDS = 1 << 12
_STATE = 4096
_FIRST = 2 * _STATE
_BYTES = _FIRST + (RECORDS * RECORD + _STATE - 1) // _STATE * _STATE
_LOOK = 0.002
_NUMBER = struct.Struct("<Q")
_SEQUENCE = 8
_TAKEN, _READ, _LOST = _STATE, _STATE + 8, _STATE + 16


class Ring:
    """A ring that begins with ``config``, as a file without a name."""

    def __init__(self, config: bytes) -> None:
        self._file = os.memfd_create("flagfinder-watch", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._file, _BYTES)
        # The program must not cut what we have mapped.
        fcntl.fcntl(self._file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        self._bytes = mmap.mmap(self._file, _BYTES)
        self._bytes[: len(config)] = config
        self._read = 0

    @property
    def path(self) -> str:
        """The path by which a process of the same user opens it."""
        return f"/proc/{os.getpid()}/fd/{self._file}"

    @property
    def lost(self) -> int:
        """How many records had no room."""
        return self._word(_LOST)

    def take(self, is_over: bool = False) -> bytes:
        """The records since the last call. ``is_over``: nobody will finish what is begun."""
        start = self._read
        # The program writes the number: more than are there can't have been taken.
        taken = min(self._word(_TAKEN), start + RECORDS)
        parts = []
        while self._read < taken:
            place = _FIRST + self._read % RECORDS * RECORD
            if self._word(place + _SEQUENCE) == self._read + 1:
                parts.append(self._bytes[place : place + RECORD])
            elif not is_over:
                break
            self._read += 1
        if self._read != start:
            _NUMBER.pack_into(self._bytes, _READ, self._read)
        return b"".join(parts)

    def wait(self, has_ended: Callable[[], bool], patience: float) -> tuple[bytes, bool]:
        """Waits up to ``patience`` seconds for records. Also whether these are the last: the
        process had ended before they were taken.
        """
        deadline = time.monotonic() + patience
        while True:
            is_over = has_ended()
            records = self.take(is_over)
            left = deadline - time.monotonic()
            if records or is_over or left <= 0:
                return records, is_over
            time.sleep(min(left, _LOOK))

    def close(self) -> None:
        """May be called twice."""
        if not self._bytes.closed:
            self._bytes.close()
            os.close(self._file)

    def _word(self, place: int) -> int:
        number: int = _NUMBER.unpack_from(self._bytes, place)[0]
        return number
