# SPDX-License-Identifier: MIT
"""Records between the thread that gets them from a trapper and the one that wants them.

A slow reader of the output must not hold up a process that stops at each access, so adding records
never waits.
"""

from __future__ import annotations

import queue
import time


class Records:
    """Bytes in order, cut anywhere. ``over`` once the end was put, and all before it taken."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.over = False

    def put(self, records: bytes) -> None:
        self._waiting.put(records)

    def end(self) -> None:
        self._waiting.put(None)

    def take(self, patience: float) -> bytes:
        """All that are there; waits up to ``patience`` seconds for the first."""
        taken: list[bytes] = []
        deadline = time.monotonic() + patience
        while not self.over:
            try:
                records = self._waiting.get(
                    timeout=max(0.0, deadline - time.monotonic()) if not taken else 0
                )
            except queue.Empty:
                break
            if records is None:
                self.over = True
            else:
                taken.append(records)
        return b"".join(taken)
