# SPDX-License-Identifier: MIT
"""Traps accesses to words with lldb's watchpoints.

In: a stopped process, words. Out: records of ``struct ff_watch_hit`` (``bpf/ff_watch.h``);
core/watch makes events of them as of BPF's. Every thread stops at every access, so memory holds
what the access left, unless several threads trapped at once. The kernel's own accesses do not trap.
"""

from __future__ import annotations

import struct
import time

import lldb
from ff_process import ENDED, REGISTERS

STACK_BYTES = 512
NO_CPU = 0xFFFFFFFF
MARK_VALUE = 1
# ts sequence address value reads ip rflags registers syscall tid cpu place kind marks words thread
HEAD = struct.Struct("<7Q16QqIIHBBI16s")


class Refused(Exception):
    """lldb, or the kernel, can't do it."""


class Traps:
    """Watchpoints in a process that is stopped now, and stays so between calls.

    ``words`` are (address, size, whether reads trap, too). Raises Refused when a watchpoint can't
    be set; the others are gone then.
    """

    def __init__(self, process: lldb.SBProcess, words: list[tuple[int, int, bool]]) -> None:
        self._process = process
        self._words = words
        self._places: dict[int, int] = {}
        target = process.GetTarget()
        for place, (address, size, reads) in enumerate(words):
            options = lldb.SBWatchpointOptions()
            # Not `on modify`: a store of the same value is a write, too.
            options.SetWatchpointTypeWrite(lldb.eWatchpointWriteTypeAlways)
            options.SetWatchpointTypeRead(reads)
            error = lldb.SBError()
            watchpoint = target.WatchpointCreateByAddress(address, size, options, error)
            if not watchpoint.IsValid() or error.Fail():
                self.remove()
                raise Refused(
                    f"lldb can't watch {size} bytes at {address:#x}: {error.GetCString()}"
                )
            self._places[watchpoint.GetID()] = place

    def resume(self) -> tuple[list[bytes], bool]:
        """Lets the process run to its next stop: the records of that, and whether the process has
        ended.

        No record, and not ended: something else stopped it, an interruption for instance. Needs
        lldb's synchronous mode.
        """
        error = self._process.Continue()
        if self._process.GetState() in ENDED:
            return [], True
        if error.Fail():
            raise Refused(f"the process can't go on: {error.GetCString()}")
        ts = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        stopped = (
            thread
            for thread in self._process
            if thread.GetStopReason() == lldb.eStopReasonWatchpoint
        )
        places = (
            (thread, self._places.get(thread.GetStopReasonDataAtIndex(0))) for thread in stopped
        )
        return [
            self._record(ts, thread, place) for thread, place in places if place is not None
        ], False

    def remove(self) -> None:
        """Takes the watchpoints away, while the process is stopped."""
        target = self._process.GetTarget()
        for number in self._places:
            target.DeleteWatchpoint(number)
        self._places = {}

    def _record(self, ts: int, thread: lldb.SBThread, place: int) -> bytes:
        frame = thread.GetFrameAtIndex(0)
        registers = [frame.FindRegister(name).GetValueAsUnsigned() for name in REGISTERS]
        flags = frame.FindRegister("rflags").GetValueAsUnsigned()
        address, size, _ = self._words[place]
        value = self._read(address, size)
        number = int.from_bytes(value or b"", "little")
        stack = self._stack(frame.GetSP())
        marks = MARK_VALUE if value is not None else 0
        name = (thread.GetName() or "").encode()[:15]
        head = HEAD.pack(
            *(ts, 0, address, number, 1, frame.GetPC(), flags, *registers, 0),
            *(thread.GetThreadID(), NO_CPU, place, 0, marks, len(stack) // 8, name),
        )
        return head + stack.ljust(STACK_BYTES, b"\0")

    def _stack(self, sp: int) -> bytes:
        whole = self._read(sp, STACK_BYTES)
        if whole is None:  # it ends before, at a page's end
            whole = self._read(sp, min(STACK_BYTES, -sp % 4096)) or b""
        return whole[: len(whole) // 8 * 8]

    def _read(self, address: int, size: int) -> bytes | None:
        if size == 0:
            return None
        error = lldb.SBError()
        content = self._process.ReadMemory(address, size, error)
        return content if error.Success() and content is not None and len(content) == size else None
