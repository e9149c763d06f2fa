# SPDX-License-Identifier: MIT
"""What recording and watching under lldb share: the way to the command that started lldb, and how
a process is attached to and read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
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


TRAP = 1 << 4  # SIGTRAP in a mask of /proc


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


def loses_traps(pid: int, stepped: int | None = None) -> str | None:
    """Why a trap of the debugger would change what the process does with SIGTRAP; None: it would
    not.

    The kernel forces SIGTRAP on a thread that steps, or meets a breakpoint or a watchpoint. Where
    the thread blocks it, or the process ignores it, that puts the default action in the place of
    the program's own, and takes it out of the mask (core/step/src/signals.rs).
    """
    whole = _masks(Path(f"/proc/{pid}"))
    if whole.get("SigIgn", 0) & TRAP:
        return "it ignores SIGTRAP, which a debugger's traps would make it forget"
    handles = whole.get("SigCgt", 0) & TRAP
    for task in sorted(Path(f"/proc/{pid}/task").glob("*")):
        blocks = _masks(task).get("SigBlk", 0) & TRAP
        if blocks and (handles or task.name == str(stepped)):
            loses = "the handler" if handles else "that"
            return f"thread {task.name} blocks SIGTRAP, and a debugger's traps would end {loses}"
    return None


def handles_traps(pid: int) -> bool:
    """Whether it has a handler of SIGTRAP."""
    return bool(_masks(Path(f"/proc/{pid}")).get("SigCgt", 0) & TRAP)


def _masks(folder: Path) -> dict[str, int]:
    try:
        # A thread's name may hold every other end of a line.
        lines = (folder / "status").read_bytes().decode(errors="replace").split("\n")
    except OSError:
        return {}
    fields = (line.partition(":\t") for line in lines if line.startswith("Sig"))
    return {
        name: int(value, 16) for name, _, value in fields if name in ("SigIgn", "SigCgt", "SigBlk")
    }
