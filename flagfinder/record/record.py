# SPDX-License-Identifier: MIT
"""Recording a program: everything that can be known to fail is asked first, then the recorder
runs.
"""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Callable, Sequence
from pathlib import Path

from flagfinder.record import stalker
from flagfinder.record.canary import check_canary
from flagfinder.record.recorder import Progress, Recording, RecordOptions, run_tracer
from flagfinder.record.tracer_build import ensure_tracer
from flagfinder.shared.environment import handed_on
from flagfinder.shared.errors import UsageError
from flagfinder.shared.target import check_machine, find_program

# As pintools/client/ff_ranges.c reads them.
_RANGE = re.compile(
    rb"[^\n]{1,127}\+(?:0x)?([0-9a-f]{1,16})(?:-(?:0x)?([0-9a-f]{1,16}))?", re.IGNORECASE
)


def record(
    command: Sequence[str],
    output: str | os.PathLike[str],
    options: RecordOptions | None = None,
    *,
    announce: Callable[[str], None] = lambda _text: None,
    progress: Callable[[Progress], None] | None = None,
) -> Recording:
    """Runs ``command`` under the tracer and writes what it does to ``output``.

    ``announce`` gets a line when the tracer has to be built or checked first. Ctrl-C (SIGINT) ends
    the recording cleanly and keeps the trace. Raises TargetError or PermissionDeniedError when the
    program can't be run, UnavailableError when the tracer can't be built or corrupts programs on
    this machine.
    """
    chosen = options or RecordOptions()
    check_machine()
    find_program(command)
    path = Path(output)
    check_output(path)
    if chosen.values_in is not None:
        check_ranges(chosen.values_in)
    if chosen.tracer == "frida":
        return stalker.record(command, path, chosen, progress)
    tracer = ensure_tracer(announce)
    check_canary(tracer, announce)
    with handed_on(chosen.environment) as environment:
        return run_tracer(command, path, chosen, tracer, progress, environment)


def check_output(path: Path) -> None:
    if path.is_dir():
        raise UsageError(
            "The trace can't be written",
            f"{path} is a directory",
            f"Name a file: -o {path / 'spin.trace'}",
        )
    if not path.absolute().parent.is_dir():
        raise UsageError(
            "The trace can't be written",
            f"there is no directory {path.parent}",
            f"Make it first: mkdir -p {path.parent}",
        )


def check_ranges(path: Path) -> None:
    """Refuses a file of ``values_in`` that the tracer would refuse once the program is started."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise _unfit_ranges(path, str(error.strerror)) from error
    for number, line in enumerate(lines, 1):
        if not line or line.startswith(b"#"):
            continue
        match = _RANGE.fullmatch(line)
        if match is None or (match[2] and int(match[2], 16) <= int(match[1], 16)):
            raise _unfit_ranges(path, f"line {number} is {reprlib.repr(os.fsdecode(line))}")


def _unfit_ranges(path: Path, found: str) -> UsageError:
    return UsageError(
        f"--values-in {path} can't be used",
        found,
        "Write lines like module+0xSTART-0xEND, with START below END.",
    )
