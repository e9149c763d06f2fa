# SPDX-License-Identifier: MIT
"""Runs a program under a tracer that is known to work, and says what was recorded.

In: a command line, options, a tracer. Out: a trace file and a ``Recording``. The program keeps our
stdin, stdout, stderr and terminal; flagfinder writes nothing there. (`record --json` gives it
another stdout: the command line's own, ``cli/__init__.py``.)
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from flagfinder import _core
from flagfinder.record.code_generators import code_generator
from flagfinder.record.last_look import running_code
from flagfinder.record.tracer_build import Tracer
from flagfinder.shared.errors import PermissionDeniedError
from flagfinder.shared.machine import as_fields, check_machine_abilities
from flagfinder.shared.mark_folder import check_folder
from flagfinder.shared.marks import END, MarkInbox
from flagfinder.shared.notes import Note
from flagfinder.shared.record import dataclass
from flagfinder.shared.visible import as_unicode

if TYPE_CHECKING:
    from flagfinder.trace.fields import Ended

Level = Literal["flow", "values"]
Then = Literal["kill", "leave"]
TracerName = Literal["dynamorio", "frida"]
GeneratedCode = Literal["auto", "yes", "no"]

_BYTES_A_BLOCK = 2  # FF_FLOW: ids below 0xf000 take one 16-bit unit
POOL_PLACEHOLDER = "{pool}"  # core/record puts the pool's path there


@dataclass(frozen=True)
class RecordOptions:
    """How to record.

    ``last`` bounds the file to its newest bytes. ``stop_when_spinning`` ends the recording once a
    thread has repeated the same few blocks for that many seconds, ``stop_after`` after so many
    seconds in all; ``then`` says what becomes of the program in these cases. ``until`` ends it when
    the program prints that text; its stdout and stderr pass through the recorder then.
    ``follow_children``: record child processes too. None: where the tracer does that, and a
    recording that waits for nothing ends with the program, not with the last child. ``values_in``
    limits loaded values to code ranges: lines of ``module+0xstart-0xend``. ``environment`` are
    settings, NAME=VALUE each, for the program alone. ``generated_code`` is whether the program
    generates code while it runs, for which the tracer needs a slower setting; ``auto`` looks at the
    executable (``code_generators.py``).
    """

    level: Level = "values"
    tracer: TracerName = "dynamorio"
    last: int | None = None
    stop_when_spinning: float | None = None
    stop_after: float | None = None
    until: str | None = None
    then: Then = "kill"
    follow_children: bool | None = None
    values_in: Path | None = None
    environment: tuple[str, ...] = ()
    generated_code: GeneratedCode = "auto"

    @property
    def follows(self) -> bool:
        """Whether children are recorded. An unpatched DynamoRIO takes from set-user-ID children
        their rights.
        """
        if self.follow_children is None:
            return self.tracer == "dynamorio" and "DYNAMORIO_HOME" not in os.environ
        return self.follow_children

    @property
    def waits_for_children(self) -> bool:
        """Whether the recording goes on after the program's own end."""
        return self.follows and (
            self.follow_children is True or self.stop_when_spinning is not None
        )


@dataclass(frozen=True)
class Progress:
    """What a recording has so far: time in ns, bytes on disk, bytes taken from the threads."""

    ns: int
    stored_bytes: int
    raw_bytes: int


@dataclass(frozen=True)
class Recording:
    """What was recorded.

    ``ended`` is ``target-ended``, ``spinning``, ``interrupted``, ``limit``, ``printed``, ``marked``
    or ``write-failed``; ``ended_by`` the text that was printed or the mark's. ``status`` is the
    program's exit status, ``signal`` what killed it; both None if it still runs. ``threads`` is how
    many ran something. ``flow_bytes`` and ``values_bytes`` are what they wrote, ``stored_bytes``
    the file's size. ``notes`` are the losses, fallbacks and warnings.
    """

    path: Path
    pid: int
    ended: Ended
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
    ended_by: str | None = None

    @property
    def blocks_about(self) -> int:
        """How many blocks ran, from the flow's size: events count too, so it is a little too
        high.
        """
        return self.flow_bytes // _BYTES_A_BLOCK

    @property
    def exit_code(self) -> int:
        """The program's exit status as a shell gives it; 0 when ending it was asked for."""
        if self.ended in ("spinning", "printed", "marked") or (
            self.status is None and self.signal is None
        ):
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

    The word ``{pool}`` in it is replaced by the path of the shared memory. ``key`` changes when
    what the tracer does may change. ``fallbacks`` says what is not as it should be; the trace keeps
    it, as notes.
    """

    tracer: TracerName
    argv: Sequence[str]
    key: str
    fallbacks: Sequence[str] = ()


def run_tracer(
    command: Sequence[str],
    path: Path,
    options: RecordOptions,
    tracer: Tracer,
    progress: Callable[[Progress], None] | None = None,
    environment: int | None = None,
) -> Recording:
    """Records with DynamoRIO without checking anything first; see ``flagfinder.record``.

    ``environment`` is a descriptor that holds the program's; without, that is ours.
    """
    words = _launcher(options, tracer)
    fallbacks = list(tracer.fallbacks)
    generator = code_generator(command) if options.generated_code == "auto" else None
    if generator is not None:
        fallbacks.append(
            f"{generator[0]} starts {generator[1]}, which generates code: recorded with the "
            "setting for that, which is slower (--generated-code no records without)"
        )
    if generator is not None or options.generated_code == "yes":
        words.append("--generates-code")
    if environment is not None:
        words += ["--environment", str(environment)]
    launch = Launch("dynamorio", [*words, "--", *command], tracer.key, fallbacks)
    return run_launch(command, path, options, launch, progress)


def run_launch(
    command: Sequence[str],
    path: Path,
    options: RecordOptions,
    launch: Launch,
    progress: Callable[[Progress], None] | None = None,
) -> Recording:
    """Records with any tracer that speaks the protocol of the shared memory
    (``include/ff_protocol.h``).
    """
    fallbacks, marks = list(launch.fallbacks), []
    with _marks(fallbacks) as inbox:

        def look(*fields: int) -> bool:
            """Whether a mark asks for the end."""
            if progress is not None:
                progress(Progress(*fields))
            marks.extend(inbox.take())
            return bool(marks)

        outcome = _core.record(
            output=os.fspath(path),
            command=as_unicode(command),
            tracer_argv=list(launch.argv),
            tracer=launch.tracer,
            level=options.level,
            last=options.last,
            stop_when_spinning=options.stop_when_spinning,
            stop_after=options.stop_after,
            until=None if options.until is None else os.fsencode(options.until),
            kill_target=options.then == "kill",
            follow_children=options.waits_for_children,
            facts_json=json.dumps(
                {
                    "tracer_key": launch.key,
                    "flagfinder": _core.VERSION,
                    "doctor": as_fields(check_machine_abilities()),
                }
            ),
            fallbacks=fallbacks,
            progress=look,
            ending=lambda processes, spinning: json.dumps(running_code(processes, spinning)),
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
        ended_by={"printed": options.until, "marked": next(iter(marks), None)}.get(outcome.ended),
    )


def _marks(fallbacks: list[str]) -> contextlib.AbstractContextManager[MarkInbox]:
    """Where a mark that ends the recording comes in. Without a safe place there is none, and a
    fallback says so.
    """
    try:
        check_folder()
    except PermissionDeniedError as error:
        fallbacks.append(f"no mark can end this recording: {error.found}")
        return contextlib.nullcontext(MarkInbox(END))
    return MarkInbox(END)


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
    if options.follows:
        words.append("--follow-children")
    return words
