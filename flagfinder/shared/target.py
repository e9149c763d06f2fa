# SPDX-License-Identifier: MIT
"""Whether a program can be recorded at all, asked before anything is started.

What the tracer can't do is said here in words; left to the tracer it would be a target that dies
oddly.
"""

from __future__ import annotations

import importlib.util
import mmap
import os
import platform
import pwd
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from flagfinder.shared.elf import (
    CLASS_64,
    INTERPRETER,
    MAGIC,
    SCRIPT_DEPTH,
    X86_64,
    interpreter,
    segments,
)
from flagfinder.shared.errors import (
    PermissionDeniedError,
    TargetError,
    UnavailableError,
    UsageError,
)

_READING_WORKS = "Traces recorded elsewhere can be read here."


def check_machine() -> None:
    """Raises UnavailableError unless this is x86-64 Linux."""
    system, machine = platform.system(), platform.machine()
    if (system, machine) != ("Linux", "x86_64"):
        raise UnavailableError(
            "Programs can't be recorded on this machine",
            f"{system} on {machine}",
            "Record on x86-64 Linux.",
            _READING_WORKS,
        )


def caller() -> pwd.struct_passwd | None:
    """Whom programs are run as, when that is not this user: under sudo the user who called it."""
    number = os.environ.get("SUDO_UID", "0")
    if os.geteuid() != 0 or not number.isdecimal() or int(number) == 0:
        return None
    with suppress(KeyError, OverflowError):
        return pwd.getpwuid(int(number))
    return None


def find_program(command: Sequence[str], traced: bool = True) -> Path:
    """The file that ``command`` runs, by the shell's rules.

    ``traced``: something runs in it, or stops it. Raises UsageError without a command, TargetError
    when the file is missing or of a kind that can't be traced, PermissionDeniedError when it may
    not be run, or would gain rights that a traced program must not have.
    """
    if not command:
        raise UsageError(
            "There is no program to record",
            "nothing follows `--`",
            "Write `flagfinder record -o FILE -- PROGRAM ARGS`.",
        )
    name = command[0]
    found = shutil.which(name)
    if found is None:
        _explain_missing(name)
    assert found is not None
    program = Path(found)
    _check_kind(program, program, SCRIPT_DEPTH, traced)
    return program


def _check_loadable(program: Path) -> None:
    """Raises TargetError when no library can be loaded into ``program``: it is static, or not for
    x86-64.
    """
    _check_kind(program, program, SCRIPT_DEPTH, True)
    with program.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:4] != MAGIC:
            return  # a script: its interpreter was looked at
        kinds = [segment.kind for segment in segments(data)]
    if INTERPRETER not in kinds:
        raise TargetError(
            "The frida tracer can't record a static program",
            f"{program} has no dynamic loader, so no library can be brought into it",
            "Record it with --tracer dynamorio, or link it dynamically.",
            _READING_WORKS,
        )


def check_frida(command: Sequence[str], otherwise: str) -> None:
    """Raises TargetError for a program into which no library can be loaded, UnavailableError
    without Frida; ``otherwise`` says what works all the same.
    """
    _check_loadable(find_program(command))
    if importlib.util.find_spec("frida") is None:
        raise UnavailableError(
            "Frida is not installed",
            "no Python module frida",
            "Try: pip install 'flagfinder[frida]'",
            otherwise,
        )


def _explain_missing(name: str) -> None:
    path = Path(name)
    if "/" not in name:
        raise TargetError(
            "The program was not found",
            f"no {name} in PATH",
            f"Give its path, as in ./{name}, or check the spelling.",
        )
    if path.is_dir():
        raise TargetError(
            "The program can't be run", f"{name} is a directory", "Name the program inside it."
        )
    if path.exists():
        raise PermissionDeniedError(
            "The program may not be run",
            f"{name} is not executable for this user",
            f"Try: chmod +x {name}",
        )
    raise TargetError("The program was not found", f"there is no {name}", "Check the path.")


def _check_rights(file: Path) -> None:
    """Raises PermissionDeniedError for a program that would run as somebody else than who starts
    it.
    """
    status, user = file.stat(), caller()
    uid, gid = (os.geteuid(), os.getegid()) if user is None else (user.pw_uid, user.pw_gid)
    changes_user = status.st_mode & stat.S_ISUID and status.st_uid != uid
    # Without the group's x, the bit is about locks and not about rights.
    changes_group = (
        status.st_mode & stat.S_ISGID and status.st_mode & stat.S_IXGRP and status.st_gid != gid
    )
    if changes_user or changes_group:
        of_root = (
            "\nOr run it as root, for root: sudo env -u SUDO_UID flagfinder record .."
            if not status.st_uid
            else ""
        )
        raise PermissionDeniedError(
            f"A set-{'user' if changes_user else 'group'}-ID program can't be recorded as it runs",
            f"{file} gains privileges that a traced program must not have",
            f"Record a copy without that bit.{of_root if changes_user else ''}",
            "Nothing was started. `flagfinder spin PID`, as root, looks at it while it runs.",
        )


def _check_kind(program: Path, file: Path, depth: int, traced: bool) -> None:
    if traced:
        _check_rights(file)
    try:
        with file.open("rb") as handle:
            head = handle.read(256)
    except PermissionError as error:
        raise PermissionDeniedError(
            "The program can't be inspected",
            f"{file} is executable but not readable",
            "Record as a user who may read it.",
        ) from error
    if head.startswith(b"#!"):
        words = interpreter(file)
        if words and depth > 0 and (target := Path(words[0])).is_file():
            _check_kind(program, target, depth - 1, traced)
            return
        raise TargetError(
            "The script can't be run",
            f"{file} names an interpreter that is not there",
            "Correct the script's first line.",
        )
    if not head.startswith(MAGIC):
        raise TargetError(
            "The program can't be recorded",
            f"{file} is no ELF program and has no #! line",
            f"Run it through its interpreter, as in `-- sh {file}`.",
        )
    machine = int.from_bytes(head[18:20], "little")
    if head[4] != CLASS_64 or machine != X86_64:
        bits = 64 if head[4] == CLASS_64 else 32
        raise TargetError(
            "The program is not for x86-64",
            f"{file} is a {bits}-bit ELF file for machine {machine}",
            "Record a 64-bit x86 build of it.",
            _READING_WORKS,
        )
