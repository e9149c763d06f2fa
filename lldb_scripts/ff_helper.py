# SPDX-License-Identifier: MIT
"""Runs in an lldb of its own, which ``flagfinder watch --backend lldb`` starts: attaches, traps,
and detaches again.

``FF_LLDB_HELPER`` holds two descriptors. On the first comes one JSON line, what to watch; its end,
also by the death of the other side, means: let go. On the second goes one JSON line, ``{"error":
null}`` or what failed, then records.
"""

from __future__ import annotations

import json
import threading
from typing import IO, Any, BinaryIO

import ff_process
import ff_trap
import lldb

INTERVAL = 0.05


def main(debugger: lldb.SBDebugger) -> None:
    """Returns when the process has ended, or has been let go of."""
    with ff_process.other_side() as (asked, told):
        wanted = json.loads(asked.readline())
        try:
            process, traps = _attach(debugger, wanted)
        except ff_trap.Refused as error:
            told.write(json.dumps({"error": str(error)}).encode() + b"\n")
            return
        try:
            told.write(b'{"error": null}\n')
            _serve(process, traps, asked, told)
        except BrokenPipeError:
            pass  # nobody listens any more
        finally:
            traps.remove()
            process.Detach()


def _attach(
    debugger: lldb.SBDebugger, wanted: dict[str, Any]
) -> tuple[lldb.SBProcess, ff_trap.Traps]:
    # Before it attaches: what lldb detaches from has got a SIGCONT.
    if loses := ff_process.loses_traps(wanted["pid"]):
        raise ff_trap.Refused(f"lldb can't watch process {wanted['pid']}: {loses}")
    try:
        process = ff_process.attach(debugger, wanted["pid"])
    except ff_process.NotAttached as error:
        raise ff_trap.Refused(f"lldb can't attach: {error}") from error
    try:
        words = [(word["address"], word["size"], word["reads"]) for word in wanted["words"]]
        return process, ff_trap.Traps(process, words)
    except BaseException:
        process.Detach()
        raise


def _serve(process: lldb.SBProcess, traps: ff_trap.Traps, asked: IO[str], told: BinaryIO) -> None:
    stopping = threading.Event()

    def wait_for_end() -> None:
        asked.read()
        stopping.set()
        # Again and again: a request that comes while the process is stopped does nothing. Nothing
        # else may be asked here: the other thread holds lldb's lock while the process runs.
        while not done.is_set():
            process.SendAsyncInterrupt()
            done.wait(INTERVAL)

    done = threading.Event()
    waiter = threading.Thread(target=wait_for_end, daemon=True)
    waiter.start()
    try:
        while not stopping.is_set():
            records, ended = traps.resume()
            if records:
                told.write(b"".join(records))
            if ended:
                return
    finally:
        done.set()
        if stopping.is_set():
            waiter.join()
