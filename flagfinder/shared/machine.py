# SPDX-License-Identifier: MIT
"""What this user may do on this machine, found out by trying it. Cheap enough for every recording
to store it.

Each ``Check`` says what was found and how to fix it. Nothing here touches another process but
children of its own. ``core/bpf`` tries what it needs itself.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from flagfinder import _core
from flagfinder.shared.errors import FlagfinderError
from flagfinder.shared.helper import ends_with_us
from flagfinder.shared.record import dataclass

if TYPE_CHECKING:
    from flagfinder.shared.fields import CheckFields

_PTRACE_SEIZE = 0x4206
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Check:
    """``works`` is None where it could not be told. ``serves`` is what needs it, ``fix`` is empty
    when it works.

    What is ``optional`` widens what those verbs can do; they work without it.
    """

    name: str
    works: bool | None
    found: str
    fix: str
    serves: str
    optional: bool = False


def check_machine_abilities() -> tuple[Check, ...]:
    """All checks of the machine alone, in the order in which the verbs need them."""
    checks: tuple[Callable[[], Check], ...] = (_ptrace, _strangers, _bpf, _breakpoints)
    return tuple(check() for check in checks)


def as_fields(checks: tuple[Check, ...]) -> list[CheckFields]:
    return [
        {
            "name": check.name,
            "works": check.works,
            "found": check.found,
            "fix": check.fix,
            "serves": check.serves,
            "optional": check.optional,
        }
        for check in checks
    ]


def yama_scope() -> int | None:
    """kernel.yama.ptrace_scope: None without Yama, 0 own processes, 1 descendants, 2 root only, 3
    nobody.
    """
    try:
        return int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _ptrace() -> Check:
    serves = "spin, poke, record --tracer lldb, watch --backend lldb"
    scope = yama_scope()
    if scope == 3 or (scope and not _core.has_capability("CAP_SYS_PTRACE")):
        who = {1: "only children can", 2: "only by CAP_SYS_PTRACE a process can"}
        found = f"{who.get(scope, 'no process can')} be traced (ptrace_scope is {scope})"
        return Check("ptrace", False, found, _core.how_to_look(), serves)
    child = subprocess.Popen(
        ["sleep", "60"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        preexec_fn=ends_with_us(),  # noqa: PLW1509
    )
    try:
        traced = _libc.ptrace(_PTRACE_SEIZE, child.pid, None, None) == 0
        reason = "" if traced else os.strerror(ctypes.get_errno())
    finally:
        child.kill()
        child.wait()
    if not traced:
        fix = "Allow ptrace in the container (docker run --cap-add SYS_PTRACE), or run as root."
        return Check("ptrace", False, f"tracing a child fails: {reason}", fix, serves)
    return Check("ptrace", True, "processes of this user can be traced", "", serves)


def _strangers() -> Check:
    name, serves = "other users", "spin, poke and watch of other users' processes"
    if _core.has_capability("CAP_SYS_PTRACE"):
        return Check(
            name, True, "their processes can be looked at, too (CAP_SYS_PTRACE)", "", serves, True
        )
    found = "their processes can't be looked at (no CAP_SYS_PTRACE)"
    return Check(
        name, False, found, _core.how_to_get_capabilities(["CAP_SYS_PTRACE"]), serves, True
    )


def _bpf() -> Check:
    return _probed(
        "BPF",
        "watch, events",
        _core.check_programs,
        "programs load, the kernel has type information",
    )


def _breakpoints() -> Check:
    return _probed(
        "breakpoints", "watch", _core.check_breakpoints, "debug registers can be set on a CPU"
    )


def _probed(name: str, serves: str, probe: Callable[[], None], works: str) -> Check:
    try:
        probe()
    except FlagfinderError as error:
        return Check(name, False, str(error), error.fix, serves)
    return Check(name, True, works, "", serves)
