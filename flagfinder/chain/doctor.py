# SPDX-License-Identifier: MIT
"""What flagfinder needs: the machine's abilities, the tools that it calls, the tracer, one
process's or program's debug information.

What is only fetched or built at first use is checked as far as that needs: the BPF programs are
compiled, which takes a second; the tracer is not built, but what builds it is looked for.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
from pathlib import Path

from flagfinder import _core
from flagfinder.interpreters.py_spy import find_py_spy
from flagfinder.interpreters.which import UnreadableError, mapped_files
from flagfinder.record.canary import check_canary
from flagfinder.record.tracer_build import cached_tracer, missing_tools
from flagfinder.shared.bpf_build import bpf_object
from flagfinder.shared.errors import FlagfinderError, UnavailableError, UsageError
from flagfinder.shared.lldb_helper import choose_lldb
from flagfinder.shared.machine import Check, check_machine_abilities
from flagfinder.shared.own_proc import require_own_proc
from flagfinder.shared.places import PACKAGE, shipped
from flagfinder.shared.proc_lines import proc_lines
from flagfinder.shared.record import dataclass


@dataclass(frozen=True)
class Report:
    """What works and what doesn't, each with its fix."""

    checks: tuple[Check, ...]

    @property
    def works(self) -> bool:
        """Whether nothing that a verb needs is known not to work."""
        return all(check.works is not False or check.optional for check in self.checks)


def examine(pid: int | None = None, program: Path | None = None) -> Report:
    """Checks the machine, and with ``pid`` or ``program`` how well that can be looked at.

    The tracer is not built for this. Raises UsageError when there is no such process or program.
    """
    checks = [
        *check_machine_abilities(),
        _kernel(),
        _bpf_programs(),
        _tracer(),
        _lldb(),
        _gdb(),
        _py_spy(),
        _frida(),
    ]
    if pid is not None:
        require_own_proc()
        checks.append(_process(pid))
        checks.append(_debug_info(_mapped_files(pid), f"process {pid}"))
    if program is not None:
        if not program.is_file():
            raise UsageError(
                "The program can't be examined", f"there is no file {program}", "Check the path."
            )
        checks.append(_debug_info([program], str(program)))
    return Report(tuple(checks))


def _tracer() -> Check:
    serves = "record, find, registers"
    try:
        tracer = cached_tracer()
        if tracer is None:
            return _unbuilt_tracer(serves)
        check_canary(tracer, lambda _text: None)
    except FlagfinderError as error:
        return Check("tracer", False, str(error), error.fix, serves)
    return Check(
        "tracer",
        True,
        f"built, and programs see under it what they see without: {tracer.directory}",
        "",
        serves,
    )


def _unbuilt_tracer(serves: str) -> Check:
    if missing := missing_tools():
        fix = f"On Debian: apt-get install {' '.join(sorted(set(missing.values())))}"
        return Check(
            "tracer",
            False,
            f"not built yet, and tools are missing: {', '.join(missing)}",
            fix,
            serves,
        )
    fix = "flagfinder record --check builds it now (two minutes)"
    return Check(
        "tracer",
        None,
        "not built yet; the first recording builds it, all tools are there",
        fix,
        serves,
    )


def _kernel() -> Check:
    """The version alone: some distributions' older kernels have what is needed, too."""
    release, serves = platform.release(), "watch, events"
    numbers = [
        int(number) if number.isdecimal() else 0
        for number in release.replace("-", ".").split(".")[:2]
    ]
    if numbers >= [int(number) for number in _core.MINIMUM_KERNEL.split(".")]:
        return Check("kernel", True, f"Linux {release}", "", serves)
    found, fix = (
        f"Linux {release}, older than {_core.MINIMUM_KERNEL}",
        f"Use Linux {_core.MINIMUM_KERNEL} or newer.",
    )
    return Check("kernel", None, found, fix, serves)


def _bpf_programs() -> Check:
    name, serves = "BPF programs", "watch, events"
    try:
        for program in ("watch", "events", "top"):
            bpf_object(program)
    except UnavailableError as error:
        return Check(name, False, f"{error.what}: {error.found}", error.fix, serves)
    return Check(name, True, "compiled", "", serves)


def _lldb() -> Check:
    serves = "record --tracer lldb, watch --backend lldb, why inside lldb"
    try:
        found = choose_lldb("")
    except UnavailableError as error:
        return Check("lldb", False, f"{error.what}: {error.found}", error.fix, serves, True)
    script = shipped("lldb_scripts", "flagfinder_lldb.py")
    return Check(
        "lldb", True, f"{found}; inside it:\ncommand script import {script}", "", serves, True
    )


def _gdb() -> Check:
    serves = "why inside gdb"
    found = shutil.which("gdb")
    if found is None:
        return Check("gdb", False, "it is not in PATH", "apt install gdb", serves, True)
    script = PACKAGE / "report" / "debuggers" / "in_gdb_session.py"
    return Check("gdb", True, f"{found}; inside it:\nsource {script}", "", serves, True)


def _py_spy() -> Check:
    serves = "spin of Python programs: their own code"
    try:
        return Check("py-spy", True, find_py_spy(), "", serves, True)
    except UnreadableError as error:
        return Check("py-spy", False, str(error), "pip install py-spy", serves, True)


def _frida() -> Check:
    serves = "record --tracer frida, watch --backend frida"
    if importlib.util.find_spec("frida") is None:
        return Check(
            "frida",
            False,
            "no Python module frida",
            "pip install 'flagfinder[frida]'",
            serves,
            True,
        )
    return Check("frida", True, "installed", "", serves, True)


def _process(pid: int) -> Check:
    serves = "spin, poke, watch"
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        raise UsageError(
            "The process can't be examined", f"there is no process {pid}", "`ps -e` lists them."
        )
    fields = dict(line.split(":", 1) for line in proc_lines(status) if ":" in line)
    tracer = int(fields.get("TracerPid", "0"))
    name = f"process {pid}"
    if tracer:
        return Check(
            name, False, f"process {tracer} traces it already", "End that debugger first.", serves
        )
    try:
        with Path(f"/proc/{pid}/mem").open("rb"):
            pass
        with os.fdopen(_core.open_named(f"/proc/{pid}/exe"), "rb") as file:
            is_64_bit = file.read(5)[4:] == b"\x02"
    except OSError as error:
        fix = "Run as its user or as root (CAP_SYS_PTRACE); see ptrace above."
        return Check(name, False, f"its memory can't be opened: {error.strerror}", fix, serves)
    if not is_64_bit:
        return Check(
            name, False, "it is a 32-bit program", "Only 64-bit programs are understood.", serves
        )
    return Check(name, True, "it can be looked at", "", serves)


def _mapped_files(pid: int) -> list[Path]:
    root = Path(f"/proc/{pid}/root")
    try:
        files = mapped_files(pid, executable=True)
    except OSError:
        return []
    return [root / path.lstrip("/") for path in files if path.startswith("/")]


def _debug_info(files: list[Path], of: str) -> Check:
    name, serves = "debug info", "names of variables, fields and source lines"
    without = [file for file in files if not _core.has_debug_info(os.fspath(file))]
    if not files:
        return Check(
            name, None, f"the files of {of} can't be read", "Run as its user or as root.", serves
        )
    if without:
        listed = ", ".join(file.name for file in without[:4]) + (", .." if len(without) > 4 else "")
        fix = (
            "Compile with -g, or install the packages' -dbgsym; without it, names are "
            "module+offset."
        )
        return Check(
            name, None, f"{len(without)} of {len(files)} files have none: {listed}", fix, serves
        )
    return Check(name, True, f"all {len(files)} files of {of} have it", "", serves)
