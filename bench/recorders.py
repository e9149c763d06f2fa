# SPDX-License-Identifier: MIT
"""What runs a program for the comparison: nothing, DynamoRIO alone, flagfinder, and the peers.

Each recorder turns a command line into another one. What a peer prints goes to /dev/null, in its
favour; what flagfinder records goes to a file, whole.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from measure import first_line

HERE = Path(__file__).resolve().parent
Command = Callable[[Sequence[str], Path], list[str]]


@dataclass(frozen=True)
class Recorder:
    """``command(program, scratch)`` is the command line that runs a program under it.

    ``content`` says what it keeps. ``absent`` says why it can't be used here; None: it can.
    """

    name: str
    content: str
    command: Command
    version: str = ""
    env: dict[str, str] = field(default_factory=dict)
    absent: str | None = None


TRACE = "bench.trace"


def native() -> Recorder:
    """The program alone."""
    return Recorder("native", "nothing", lambda program, _scratch: list(program))


def dynamorio_alone(tracer: Path) -> Recorder:
    """The DynamoRIO that flagfinder uses, without a client, with drrun's default options: the
    floor.

    Started as pintools/launcher.c does it, by executing its library.
    """
    library = tracer / "libdynamorio.so"

    def command(program: Sequence[str], _scratch: Path) -> list[str]:
        found = shutil.which(program[0]) or program[0]
        # DynamoRIO takes the program from here, argv[0] is the library's own.
        return ["env", f"DYNAMORIO_EXE_PATH={found}", str(library), *program[1:]]

    return Recorder(
        "DynamoRIO, no client",
        "nothing",
        command,
        env={
            "DYNAMORIO_OPTIONS": "-code_api -stack_size 56K -signal_stack_size 32K",
            "DYNAMORIO_RUNUNDER": "3",
            "DYNAMORIO_CONFIGDIR": str(tracer),
        },
    )


def flagfinder(name: str, content: str, *options: str) -> Recorder:
    """``flagfinder record`` of this Python's installation, start-up and closing of the file
    included.
    """

    def command(program: Sequence[str], scratch: Path) -> list[str]:
        trace = str(scratch / TRACE)
        return [
            sys.executable,
            "-P",
            "-m",
            "flagfinder",
            "record",
            "-q",
            "-o",
            trace,
            *options,
            "--",
            *program,
        ]

    return Recorder(name, content, command)


def ours() -> list[Recorder]:
    """flagfinder at its levels."""
    return [
        flagfinder("flagfinder flow", "blocks in order, events", "--level", "flow"),
        flagfinder(
            "flagfinder values",
            "the same + newest loaded values (default options)",
            "--level",
            "values",
        ),
        flagfinder(
            "flagfinder values, tail",
            "the newest 64 MB of that",
            "--level",
            "values",
            "--last",
            "64M",
        ),
    ]


def peers() -> list[Recorder]:
    """Other recorders of executed blocks or of memory accesses. drmemtrace is used if
    DRMEMTRACE_HOME names a build.
    """
    return [
        _valgrind("lackey superblocks", "blocks in order", "--trace-superblocks=yes"),
        _valgrind("lackey mem", "instructions and addresses", "--trace-mem=yes"),
        _frida(),
        _drmemtrace(),
    ]


def _valgrind(name: str, content: str, option: str) -> Recorder:
    def command(program: Sequence[str], _scratch: Path) -> list[str]:
        return ["valgrind", "-q", "--tool=lackey", option, "--log-file=/dev/null", *program]

    missing = None if shutil.which("valgrind") else "valgrind is not installed"
    return Recorder(name, content, command, first_line("valgrind", "--version"), absent=missing)


def _frida() -> Recorder:
    missing: str | None
    try:
        version, missing = f"Frida {metadata.version('frida')}", None
    except metadata.PackageNotFoundError:
        version, missing = "", "pip install frida"

    def command(program: Sequence[str], _scratch: Path) -> list[str]:
        return [sys.executable, str(HERE / "frida_blocks.py"), *program]

    return Recorder(
        "Frida Stalker, block events", "blocks in order", command, version, absent=missing
    )


def _drmemtrace() -> Recorder:
    home = Path(os.environ.get("DRMEMTRACE_HOME", "/nonexistent"))
    client = home / "clients" / "lib64" / "release" / "libdrmemtrace.so"

    def command(program: Sequence[str], scratch: Path) -> list[str]:
        out = scratch / "drmemtrace"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        drrun = home / "bin64" / "drrun"
        return [str(drrun), "-c", str(client), "-offline", "-outdir", str(out), "--", *program]

    return Recorder(
        "drmemtrace offline",
        "instructions and addresses",
        command,
        first_line(str(home / "bin64" / "drrun"), "-version"),
        absent=None
        if client.is_file()
        else "DRMEMTRACE_HOME names no DynamoRIO build with its clients",
    )
