"""Runs a program under a tracer that is known to work, and says what was recorded.

In: a command line, options, a tracer. Out: a trace file and a ``Recording``. The program keeps our stdin,
stdout, stderr and terminal; flagfinder writes nothing there.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from flagfinder import _core
from flagfinder.machine import as_fields, check_machine_abilities
from flagfinder.notes import Note
from flagfinder.tracer_build import Tracer

Level = Literal["flow", "values"]
Then = Literal["kill", "leave"]
TracerName = Literal["dynamorio", "frida"]

_BYTES_A_BLOCK = 2  # FF_FLOW: ids below 0xf000 take one 16-bit unit
POOL_PLACEHOLDER = "{pool}"  # core/record puts the pool's path there


@dataclass(frozen=True)
class RecordOptions:
    """How to record.

    ``last`` bounds the file to its newest bytes. ``stop_when_spinning`` ends the recording once a thread
    has repeated the same few blocks for that many seconds, ``stop_after`` after so many seconds in all; ``then`` says
    what becomes of the program in both cases.
    ``values_in`` limits loaded values to code ranges: lines of ``module+0xstart-0xend``.
    """

    level: Level = "values"
    tracer: TracerName = "dynamorio"
    last: int | None = None
    stop_when_spinning: float | None = None
    stop_after: float | None = None
    then: Then = "kill"
    follow_children: bool = False
    values_in: Path | None = None


@dataclass(frozen=True)
class Progress:
    """What a recording has so far: time in ns, bytes on disk, bytes taken from the threads."""

    ns: int
    stored_bytes: int
    raw_bytes: int


@dataclass(frozen=True)
class Recording:
    """What was recorded.

    ``ended`` is ``target-ended``, ``spinning``, ``interrupted``, ``limit`` or ``write-failed``. ``status`` is the
    program's exit status, ``signal`` what killed it; both None if it still runs. ``threads`` is how many ran something.
    ``flow_bytes`` and ``values_bytes`` are what they wrote, ``stored_bytes`` the file's size. ``notes`` are the losses,
    fallbacks and warnings.
    """

    path: Path
    pid: int
    ended: str
    status: int | None
    signal: int | None
    threads: int
    ns: int
    stored_bytes: int
    flow_bytes: int
    values_bytes: int
    lost_flow_bytes: int
    lost_value_chunks: int
    spinning_threads: tuple[int, ...]
    notes: tuple[Note, ...]

    @property
    def blocks_about(self) -> int:
        """How many blocks ran, from the flow's size: events count too, so it is a little too high."""
        return self.flow_bytes // _BYTES_A_BLOCK

    @property
    def exit_code(self) -> int:
        """The program's exit status as a shell gives it; 0 when ending it was asked for."""
        if self.ended == "spinning" or (self.status is None and self.signal is None):
            return 0
        return 128 + self.signal if self.signal is not None else self.status or 0

    @property
    def signal_name(self) -> str | None:
        """``SIGKILL`` and the like."""
        if self.signal is None:
            return None
        try:
            return signal.Signals(self.signal).name
        except ValueError:
            return f"signal {self.signal}"


@dataclass(frozen=True)
class Launch:
    """How a tracer is started: ``argv`` becomes the program.

    The word ``{pool}`` in it is replaced by the path of the shared memory. ``key`` changes when what the tracer does
    may change.
    """

    tracer: TracerName
    argv: Sequence[str]
    key: str


def run_tracer(
    command: Sequence[str],
    path: Path,
    options: RecordOptions,
    tracer: Tracer,
    progress: Callable[[Progress], None] | None = None,
) -> Recording:
    """Records with DynamoRIO without checking anything first; see ``flagfinder.record``."""
    launch = Launch("dynamorio", [*_launcher(options, tracer), "--", *command], tracer.key)
    return run_launch(command, path, options, launch, progress)


def run_launch(
    command: Sequence[str],
    path: Path,
    options: RecordOptions,
    launch: Launch,
    progress: Callable[[Progress], None] | None = None,
) -> Recording:
    """Records with any tracer that speaks the protocol of the shared memory (``include/ff_protocol.h``)."""
    outcome = _core.record(
        output=os.fspath(path),
        command=list(command),
        tracer_argv=list(launch.argv),
        tracer=launch.tracer,
        level=options.level,
        last=options.last,
        stop_when_spinning=options.stop_when_spinning,
        stop_after=options.stop_after,
        kill_target=options.then == "kill",
        follow_children=options.follow_children,
        facts_json=json.dumps(
            {
                "tracer_key": launch.key,
                "flagfinder": _core.VERSION,
                "doctor": as_fields(check_machine_abilities()),
            }
        ),
        progress=None if progress is None else lambda *fields: progress(Progress(*fields)),
    )
    return Recording(
        path=path,
        pid=outcome.pid,
        ended=outcome.ended,
        status=outcome.status,
        signal=outcome.signal,
        threads=outcome.threads,
        ns=outcome.ns,
        stored_bytes=outcome.stored_bytes,
        flow_bytes=outcome.flow_bytes,
        values_bytes=outcome.values_bytes,
        lost_flow_bytes=outcome.lost_flow_bytes,
        lost_value_chunks=outcome.lost_value_chunks,
        spinning_threads=tuple(outcome.spinning_threads),
        notes=tuple(Note(level, text) for level, text in outcome.notes),
    )


def _launcher(options: RecordOptions, tracer: Tracer) -> list[str]:
    words = [
        os.fspath(tracer.directory / "ff_launch"),
        "--pool",
        POOL_PLACEHOLDER,
        "--level",
        options.level,
        "--dr",
        os.fspath(tracer.directory),
    ]
    if options.values_in is not None:
        words += ["--values-in", os.fspath(options.values_in.absolute())]
    if options.follow_children:
        words.append("--follow-children")
    return words
