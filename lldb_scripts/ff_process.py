# SPDX-License-Identifier: MIT
"""What recording and watching under lldb share: the way to the command that started lldb, and how
a process is attached to and read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, BinaryIO

import lldb

REGISTERS = (
    "rax",
    "rcx",
    "rdx",
    "rbx",
    "rsp",
    "rbp",
    "rsi",
    "rdi",
    *(f"r{number}" for number in range(8, 16)),
)
ENDED = (
    lldb.eStateExited,
    lldb.eStateDetached,
    lldb.eStateCrashed,
    lldb.eStateInvalid,
    lldb.eStateUnloaded,
)
SETTINGS = (
    "target.preload-symbols false",
    # Nothing needs to know about libraries' code: no breakpoints of the debugger's own in them.
    "plugin.jit-loader.gdb.enable off",
)


class NotAttached(Exception):
    """What lldb says of it, if anything."""


@contextmanager
def other_side() -> Iterator[tuple[IO[str], BinaryIO]]:
    """What the command asks, and where it is answered."""
    wishes, answers = (int(word) for word in os.environ["FF_LLDB_HELPER"].split())
    with (
        os.fdopen(wishes, encoding="utf-8") as asked,
        os.fdopen(answers, "wb", buffering=0) as told,
    ):
        yield asked, told


def attach(debugger: lldb.SBDebugger, pid: int, settings: Sequence[str] = ()) -> lldb.SBProcess:
    """All threads stand still then. Raises NotAttached."""
    for setting in (*SETTINGS, *settings):
        debugger.HandleCommand(f"settings set {setting}")
    debugger.SetAsync(False)
    error = lldb.SBError()
    process = debugger.CreateTarget("").AttachToProcessWithID(debugger.GetListener(), pid, error)
    if error.Fail():
        raise NotAttached(error.GetCString() or "lldb doesn't say why")
    _pass_signals(process)
    return process


def _pass_signals(process: lldb.SBProcess) -> None:
    """The process gets its signals as without a debugger, and none stops it."""
    signals = process.GetUnixSignals()
    own = {signals.GetSignalNumberFromName(name) for name in ("SIGTRAP", "SIGSTOP")}
    for index in range(signals.GetNumSignals()):
        number = signals.GetSignalAtIndex(index)
        if number not in own:
            signals.SetShouldStop(number, False)
            signals.SetShouldNotify(number, False)
            signals.SetShouldSuppress(number, False)
