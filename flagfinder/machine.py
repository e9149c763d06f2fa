"""What this user may do on this machine, found out by trying it. Cheap enough for every recording to store it.

Each ``Check`` says what was found and how to fix it. Nothing here touches another process but children of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flagfinder.trappers import shipped
from flagfinder.trappers.lldb_helper import find_lldb

_CAP_SYS_PTRACE = 19
_SYS_PERF_EVENT_OPEN = 298
_SYS_BPF = 321
_PTRACE_SEIZE = 0x4206
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Check:
    """``works`` is None where it could not be told. ``serves`` is what needs it, ``fix`` is empty when it works."""

    name: str
    works: bool | None
    found: str
    fix: str
    serves: str


def check_machine_abilities() -> tuple[Check, ...]:
    """All checks of the machine alone, in the order in which the verbs need them."""
    checks: tuple[Callable[[], Check], ...] = (_ptrace, _bpf, _breakpoints, _tracefs, _lldb)
    return tuple(check() for check in checks)


def as_fields(checks: tuple[Check, ...]) -> list[dict[str, Any]]:
    """For JSON."""
    return [asdict(check) for check in checks]


def has_capability(number: int) -> bool:
    """Whether this process has the capability in its effective set."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> number & 1)
    return False


def yama_scope() -> int | None:
    """kernel.yama.ptrace_scope: None without Yama, 0 own processes, 1 descendants, 2 root only, 3 nobody."""
    try:
        return int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _errno() -> str:
    return os.strerror(ctypes.get_errno())


def _ptrace() -> Check:
    child = subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        traced = _libc.ptrace(_PTRACE_SEIZE, child.pid, None, None) == 0
        reason = "" if traced else _errno()
    finally:
        child.kill()
        child.wait()
    capable, scope = has_capability(_CAP_SYS_PTRACE), yama_scope()
    found = f"CAP_SYS_PTRACE {'yes' if capable else 'no'}, ptrace_scope {'absent' if scope is None else scope}"
    others = "" if capable else "; processes of other users can't be looked at"
    serves = "spin, poke, record --tracer lldb, watch --backend lldb"
    if not traced:
        fix = "Allow ptrace in the container (docker run --cap-add SYS_PTRACE), or run as root."
        return Check("ptrace", False, f"{found}; tracing a child fails: {reason}", fix, serves)
    if not capable and scope not in (None, 0):
        fix = "sudo flagfinder spin PID, or sudo sysctl kernel.yama.ptrace_scope=0."
        return Check("ptrace", False, f"{found}: only children can be traced", fix, serves)
    return Check("ptrace", True, found + others, "", serves)


def _bpf() -> Check:
    # r0 = 0; exit, as a tracepoint program: what watch loads.
    code = struct.pack("<BBhi", 0xB7, 0, 0, 0) + struct.pack("<BBhi", 0x95, 0, 0, 0)
    instructions = ctypes.create_string_buffer(code, len(code))
    licence = ctypes.create_string_buffer(b"GPL")
    tracepoint = 5
    attributes = struct.pack(
        "<IIQQIIQII16s", tracepoint, 2, ctypes.addressof(instructions), ctypes.addressof(licence), 0, 0, 0, 0, 0, b""
    )
    buffer = ctypes.create_string_buffer(attributes, 128)
    fd = _libc.syscall(_SYS_BPF, 5, buffer, 128)
    types = Path("/sys/kernel/btf/vmlinux").exists()
    serves = "watch, events"
    if fd < 0:
        reason = _errno()
        fix = "Run as root, or with CAP_BPF and CAP_PERFMON."
        return Check("BPF", False, f"loading a program fails: {reason}", fix, serves)
    os.close(fd)
    if not types:
        fix = "Use a kernel built with CONFIG_DEBUG_INFO_BTF."
        return Check("BPF", False, "programs load, but the kernel has no type information (BTF)", fix, serves)
    return Check("BPF", True, "programs load, the kernel has type information", "", serves)


def _breakpoints() -> Check:
    word = ctypes.c_uint64(0)
    breakpoint_type, size, write, length = 5, 112, 2, 8
    attributes = bytearray(size)
    struct.pack_into("<IIQQQQQ", attributes, 0, breakpoint_type, size, 0, 1, 0, 0, 0)
    struct.pack_into("<Q", attributes, 40, 1 | 1 << 5)  # disabled, without the kernel's side
    struct.pack_into("<IQQ", attributes, 52, write, ctypes.addressof(word), length)
    buffer = ctypes.create_string_buffer(bytes(attributes), size)
    fd = _libc.syscall(_SYS_PERF_EVENT_OPEN, buffer, 0, -1, -1, 8)
    serves = "watch"
    paranoid = "?"
    with contextlib.suppress(OSError):
        paranoid = Path("/proc/sys/kernel/perf_event_paranoid").read_text(encoding="ascii").strip()
    if fd < 0:
        fix = "sudo sysctl kernel.perf_event_paranoid=1, or run as root or with CAP_PERFMON."
        found = f"perf_event_open of a breakpoint fails: {_errno()}; perf_event_paranoid is {paranoid}"
        return Check("breakpoints", False, found, fix, serves)
    os.close(fd)
    return Check("breakpoints", True, f"debug registers can be set; perf_event_paranoid is {paranoid}", "", serves)


def _tracefs() -> Check:
    for place in ("/sys/kernel/tracing", "/sys/kernel/debug/tracing"):
        if os.access(f"{place}/events/sched/sched_switch/id", os.R_OK):
            return Check("tracefs", True, place, "", "events")
    fix = "sudo mount -t tracefs tracefs /sys/kernel/tracing; reading it takes root."
    return Check("tracefs", False, "not mounted, or not readable for this user", fix, "events")


def _lldb() -> Check:
    found = find_lldb()
    serves = "record --tracer lldb, watch --backend lldb"
    if found is None:
        return Check("lldb", False, "not installed, or too old", "apt install lldb-22", serves)
    script = shipped("lldb_scripts", "flagfinder_lldb.py")
    return Check("lldb", True, f"{found}; inside it: command script import {script}", "", serves)
