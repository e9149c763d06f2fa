# SPDX-License-Identifier: MIT
"""Where a recording by steps begins: a breakpoint by name or offset, the thread, and the facts
about it.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import ff_step
import lldb

if TYPE_CHECKING:
    from flagfinder.record.fields import FrameFields, StartFields

_PLACE = re.compile(r"(?P<module>.+)\+0x(?P<offset>[0-9a-fA-F]{1,16})")
_TICKS = slice(11, 13)  # utime and stime in /proc/PID/task/TID/stat, counted behind the name


class Refused(Exception):
    """It can't begin: a kind that the command line has words for, and what was found."""

    def __init__(self, kind: str, found: str) -> None:
        super().__init__(kind, found)
        self.kind = kind
        self.found = found


def break_at(target: lldb.SBTarget, place: str) -> list[int]:
    """Sets breakpoints at the beginning of the functions called ``place``, or at
    ``module+0xoffset`` (of the file).

    Raises Refused when no module has it.
    """
    found = _PLACE.fullmatch(place)
    addresses = (
        _at_offset(target, found["module"], int(found["offset"], 16))
        if found
        else _of_name(target, place)
    )
    if not addresses:
        raise Refused(
            "symbol", f"none of the {target.GetNumModules()} modules of the program has {place}"
        )
    points = [target.BreakpointCreateBySBAddress(address) for address in addresses]
    return [point.GetID() for point in points]


def _at_offset(target: lldb.SBTarget, name: str, offset: int) -> list[lldb.SBAddress]:
    modules = [
        module for module in target.module_iter() if module.GetFileSpec().GetFilename() == name
    ]
    addresses = [module.ResolveFileAddress(offset) for module in modules]
    return [
        address
        for address in addresses
        if address.IsValid() and address.GetLoadAddress(target) != lldb.LLDB_INVALID_ADDRESS
    ]


def _of_name(target: lldb.SBTarget, name: str) -> list[lldb.SBAddress]:
    contexts = list(target.FindFunctions(name, lldb.eFunctionNameTypeAuto)) or list(
        target.FindSymbols(name, lldb.eSymbolTypeCode)
    )
    addresses: dict[int, lldb.SBAddress] = {}
    for context in contexts:
        function, symbol = context.GetFunction(), context.GetSymbol()
        if symbol.IsValid() and symbol.GetType() == lldb.eSymbolTypeTrampoline:
            continue  # the linker's stub, which the module that has the function hides
        start = function.GetStartAddress() if function.IsValid() else symbol.GetStartAddress()
        load = start.GetLoadAddress(target)
        if start.IsValid() and load != lldb.LLDB_INVALID_ADDRESS:
            addresses[load] = start
    return list(addresses.values())


def stopped_at(process: lldb.SBProcess, points: list[int]) -> lldb.SBThread | None:
    """The thread that is at one of the breakpoints; None: the process stands still for something
    else, or has ended.
    """
    for thread in process:
        if thread.GetStopReason() == lldb.eStopReasonBreakpoint:
            data = [
                thread.GetStopReasonDataAtIndex(index)
                for index in range(0, thread.GetStopReasonDataCount(), 2)
            ]
            if set(data) & set(points):
                return thread
    return None


def busiest(process: lldb.SBProcess) -> lldb.SBThread:
    """The thread that has used most processor time."""

    def ticks(thread: lldb.SBThread) -> int:
        path = Path(f"/proc/{process.GetProcessID()}/task/{thread.GetThreadID()}/stat")
        try:
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            return sum(int(field) for field in fields[_TICKS])
        except (OSError, ValueError):
            return -1

    return max(process, key=ticks)


def facts(process: lldb.SBProcess, thread: lldb.SBThread) -> StartFields:
    """What the recording begins with; addresses of the stack are module and offset, innermost
    first.
    """
    frame = thread.GetFrameAtIndex(0)
    stack: list[FrameFields] = []
    for number in range(min(thread.GetNumFrames(), ff_step.FRAMES)):
        at = thread.GetFrameAtIndex(number)
        module = at.GetModule().GetFileSpec().GetFilename() or "?"
        stack.append(
            {
                "module": module,
                "offset": f"{at.GetPCAddress().GetFileAddress():#x}",
                "function": at.GetFunctionName(),
            }
        )
    pid = process.GetProcessID()
    return {
        "pid": pid,
        "tid": thread.GetThreadID(),
        "path": str(Path(f"/proc/{pid}/exe").readlink()).removesuffix(" (deleted)"),
        "name": thread.GetName() or "",
        "pc": frame.GetPC(),
        "sp": frame.GetSP(),
        "fs_base": frame.FindRegister("fs_base").GetValueAsUnsigned(),
        "ts": time.clock_gettime_ns(time.CLOCK_MONOTONIC),
        "stack": stack,
        "threads": process.GetNumThreads(),
    }
