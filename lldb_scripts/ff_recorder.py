# SPDX-License-Identifier: MIT
"""Runs in an lldb of its own, which ``flagfinder record --tracer lldb`` starts: attaches, steps,
and detaches again.

``FF_LLDB_HELPER`` holds two descriptors. On the first comes one JSON line, what to record, and then
one for each answer; its end, also by the death of the other side, means: let go. On the second go
frames: a letter, the payload's length (u32), the payload. ``J`` is JSON (``do``: gate, begin,
modules, plan, which are answered; end, refused), ``W`` a time (u64) and words of the recording.
"""

from __future__ import annotations

import json
import queue
import struct
import threading
from collections.abc import Iterable
from typing import Any, BinaryIO

import ff_process
import ff_start
import ff_step
import lldb

SETTINGS = (
    "target.process.stop-on-sharedlibrary-events false",
    # All registers with one question to the server, where each would take one.
    "plugin.process.gdb-remote.use-g-packet-for-reading true",
    # Nothing is shown at a stop.
    "stop-disassembly-display never",
    "stop-line-count-before 0",
    "stop-line-count-after 0",
)
INTERVAL = 0.05


class _Gone(Exception):
    """The other side wants no more."""


class _Other:
    """The other side, which is a sink of the stepper."""

    def __init__(self, asked: Iterable[str], told: BinaryIO) -> None:
        self._told = told
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.gone = threading.Event()
        self._asked = asked

    def listen(self, process: lldb.SBProcess, done: threading.Event) -> None:
        """To be run beside: takes answers; once there are no more, interrupts the process until
        ``done``.
        """
        for line in self._asked:
            self._answers.put(line)
        self.gone.set()
        self._answers.put("")
        # Again and again: a request that comes while the process is stopped does nothing.
        while not done.wait(INTERVAL):
            process.SendAsyncInterrupt()

    def say(self, **what: object) -> None:
        self._send(b"J", json.dumps(what).encode())

    def ask(self, **what: object) -> Any:
        self.say(**what)
        line = self._answers.get()
        if not line:
            raise _Gone
        return json.loads(line)

    def modules(self) -> list[Any]:
        answer: list[Any] = self.ask(do="modules")
        return answer

    def plan(self, pc: int, code: bytes) -> list[Any]:
        answer: list[Any] = self.ask(do="plan", pc=pc, code=code.hex())
        return answer

    def feed(self, ts: int, words: bytes) -> None:
        self._send(b"W", struct.pack("<Q", ts) + words)

    def _send(self, letter: bytes, payload: bytes) -> None:
        try:
            self._told.write(letter + struct.pack("<I", len(payload)) + payload)
        except BrokenPipeError as error:
            raise _Gone from error


def main(debugger: lldb.SBDebugger) -> None:
    """Returns when the process has ended, or has been let go of."""
    with ff_process.other_side() as (asked, told):
        wanted = json.loads(asked.readline())
        other = _Other(asked, told)
        try:
            if not wanted["gated"]:
                # Before it attaches: what lldb detaches from has got a SIGCONT.
                check_traps(wanted["pid"], wanted["thread"])
            process = attach(debugger, wanted["pid"])
        except ff_start.Refused as error:
            other.say(do="refused", kind=error.kind, found=error.found)
            return
        done = threading.Event()
        listener = threading.Thread(target=other.listen, args=(process, done), daemon=True)
        listener.start()
        try:
            other.say(do="end", why=_record(process, wanted, other))
        except ff_start.Refused as error:
            other.say(do="refused", kind=error.kind, found=error.found)
        except _Gone:
            pass
        finally:
            done.set()
            if other.gone.is_set():
                listener.join()
            process.GetTarget().DeleteAllBreakpoints()
            process.Detach()


def attach(debugger: lldb.SBDebugger, pid: int) -> lldb.SBProcess:
    """All threads stand still then. Raises ``ff_start.Refused``."""
    try:
        return ff_process.attach(debugger, pid, SETTINGS)
    except ff_process.NotAttached as error:
        raise ff_start.Refused("attach", str(error)) from error


def check_traps(pid: int, tid: int | None) -> None:
    """Raises ``ff_start.Refused`` where steps would change what the program does with SIGTRAP."""
    if loses := ff_process.loses_traps(pid, tid):
        raise ff_start.Refused("traps", loses)


def _record(process: lldb.SBProcess, wanted: dict[str, Any], other: _Other) -> str:
    if wanted["gated"]:
        other.ask(do="gate")
        _run_to_program(process, other)
    thread = (
        _run_to_break(process, wanted["from"], other)
        if wanted["from"]
        else _chosen(process, wanted["thread"])
    )
    check_traps(process.GetProcessID(), thread.GetThreadID())
    process.SetSelectedThread(thread)
    other.ask(do="begin", **ff_start.facts(process, thread))
    return ff_step.Stepper(process, thread, other, other.gone.is_set).run(wanted["steps"])


def _run_to_program(process: lldb.SBProcess, other: _Other) -> None:
    """From the shell that waits at the gate to the program's entry, where its libraries are
    mapped.
    """
    while not any(thread.GetStopReason() == lldb.eStopReasonExec for thread in process):
        _go_on(process, other)
    target = process.GetTarget()
    program = target.FindModule(target.GetExecutable())
    begins = program.GetObjectFileEntryPointAddress()
    if any(
        thread.GetFrameAtIndex(0).GetPC() == begins.GetLoadAddress(target) for thread in process
    ):
        return  # a static program is there already, and would go on without a stop
    entry = target.BreakpointCreateBySBAddress(begins)
    while ff_start.stopped_at(process, [entry.GetID()]) is None:
        _go_on(process, other)
    target.BreakpointDelete(entry.GetID())


def _run_to_break(process: lldb.SBProcess, place: str, other: _Other) -> lldb.SBThread:
    points = ff_start.break_at(process.GetTarget(), place)
    while (thread := ff_start.stopped_at(process, points)) is None:
        _go_on(process, other)
    for point in points:
        process.GetTarget().BreakpointDelete(point)
    return thread


def _chosen(process: lldb.SBProcess, tid: int | None) -> lldb.SBThread:
    if tid is None:
        return ff_start.busiest(process)
    thread = process.GetThreadByID(tid)
    if not thread.IsValid():
        raise ff_start.Refused("thread", f"process {process.GetProcessID()} has no thread {tid}")
    return thread


def _go_on(process: lldb.SBProcess, other: _Other) -> None:
    process.Continue()
    if other.gone.is_set():
        raise _Gone
    if process.GetState() in ff_process.ENDED:
        raise ff_start.Refused("unreached", "the program ended before")
