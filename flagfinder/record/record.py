# SPDX-License-Identifier: MIT
"""Recording a program: everything that can be known to fail is asked first, then the recorder
runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from flagfinder.record import stalker
from flagfinder.record.canary import check_canary
from flagfinder.record.recorder import Progress, Recording, RecordOptions, run_tracer
from flagfinder.record.tracer_build import ensure_tracer
from flagfinder.shared.environment import handed_on
from flagfinder.shared.errors import UsageError
from flagfinder.shared.target import check_machine, find_program


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
    if chosen.tracer == "frida":
        return stalker.record(command, path, chosen, progress)
    tracer = ensure_tracer(announce)
    check_canary(tracer, announce)
    with handed_on(chosen.environment) as environment:
        return run_tracer(command, path, chosen, tracer, progress, environment)


def check_output(path: Path) -> None:
    if path.is_dir():
        raise UsageError(
            "The trace can't be written", f"{path} is a directory", f"Name a file: -o {path / 'spin.trace'}"
        )
    if not path.absolute().parent.is_dir():
        raise UsageError(
            "The trace can't be written",
            f"there is no directory {path.parent}",
            f"Make it first: mkdir -p {path.parent}",
        )
