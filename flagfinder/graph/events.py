# SPDX-License-Identifier: MIT
"""Recording who runs, who wakes whom and what threads wait for, with BPF; and looking into such
recordings.

In: a program, processes, or the whole machine. Out: a file of events; ``docs/events-format.md``
describes it. Needs CAP_BPF and CAP_PERFMON. Nothing runs in the target, and nothing stops it. Ids
of processes and threads are those of the recorder's own pid namespace.
"""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from flagfinder import _core
from flagfinder.shared.bpf_build import loadable_bpf_object
from flagfinder.shared.errors import FlagfinderError, UsageError
from flagfinder.shared.gated import GatedProgram, gated
from flagfinder.shared.interruption import held_back, interruptible
from flagfinder.shared.marks import MarkInbox
from flagfinder.shared.notes import Note
from flagfinder.shared.own_proc import require_own_proc
from flagfinder.shared.record import dataclass
from flagfinder.shared.target import find_program
from flagfinder.shared.visible import as_unicode

if TYPE_CHECKING:
    from flagfinder.graph.event_fields import EventsEnded, EventsInfoFields, FinishedFields

Syscalls = Literal["off", "lazy", "target"]
SYSCALLS: tuple[Syscalls, ...] = ("off", "lazy", "target")
StackMode = Literal["off", "application", "application-all", "library", "all"]
STACK_MODES: tuple[StackMode, ...] = ("off", "application", "application-all", "library", "all")
_PATIENCE = 0.05  # seconds that Ctrl-C may go unnoticed
_SHOWN_EVERY = 0.2


@dataclass(frozen=True)
class EventOptions:
    """What to record beside the scheduling of the processes named.

    ``everything`` records the scheduling of all processes; system calls and stacks stay those of
    the named ones. ``threads`` keeps only what concerns threads whose names fit one of these
    patterns (``*`` any letters, ``?`` one). ``syscalls``: ``lazy`` the calls that threads block in
    and wake from, at hardly any cost; ``target`` every call. ``stacks`` takes up to
    ``stack_budget`` call sites where a thread blocks and where it wakes another; with
    ``stack_copy`` so many bytes of the stack are copied, in which callers are found by unwind
    tables, however large their frames are. ``buffer`` is the size in bytes of the ring between
    kernel and recorder, a power of two. ``duration`` ends the recording after so many seconds.
    ``outlive``: it goes on while anything lives that the program started, as a daemon that has gone
    into the background. ``size`` keeps the file within so many bytes of the disk: the oldest events
    are dropped. ``mark_on_hang`` marks the moment when a main thread has not been back at its
    event wait (poll, select, epoll) for so many seconds. ``network`` records what is sent and
    received over TCP and UDP, by which recordings of several hosts are joined; ``host`` is what the
    file calls this one.
    """

    everything: bool = False
    threads: tuple[str, ...] = ()
    syscalls: Syscalls = "lazy"
    stacks: StackMode = "off"
    stack_budget: int = 8
    stack_copy: int = 0
    buffer: int = 64 << 20
    duration: float | None = None
    outlive: bool = True
    size: int | None = None
    mark_on_hang: float | None = None
    network: bool = False
    host: str | None = None


@dataclass(frozen=True)
class EventRecording:
    """What a recording came to.

    ``lost_cpus`` counts events that found no room, by CPU; ``lost_processes`` those that were
    started but for which the kernel's table had no room, so that nothing of theirs is recorded.
    ``ended`` is ``program-ended``, ``target-ended``, ``duration`` or ``interrupted``;
    ``exit_status`` is the program's, as a shell gives it, None if it still runs; ``seconds`` is how
    long it ran, None without a program. ``notes`` tell what is different from what one would
    expect.
    """

    path: Path
    ended: EventsEnded
    exit_status: int | None
    events: int
    raw_bytes: int
    file_bytes: int
    lost: int
    lost_cpus: Mapping[int, int]
    lost_processes: int
    seconds: float | None
    notes: Sequence[Note]


@dataclass(frozen=True)
class EventProgress:
    """How far a recording is: events and bytes written, events lost. ``outlives``: the program has
    ended, and what it started is still recorded.
    """

    events: int
    bytes: int
    lost: int
    outlives: bool


def record_events(
    output: Path | str,
    command: Sequence[str] = (),
    pids: Sequence[int] = (),
    options: EventOptions | None = None,
    progress: Callable[[EventProgress], None] | None = None,
    stdout: int | None = None,
    environment: Sequence[str] = (),
) -> EventRecording:
    """Records until the program, or the processes, and all that they started have ended, the time
    is over, or Ctrl-C (SIGINT, SIGTERM, or SIGHUP). Beside a program ``pids`` are recorded too, as
    a server's beside its client, but the recording does not last for them.

    ``stdout`` is where the program's output goes, as for subprocess. ``environment`` are settings,
    NAME=VALUE each, for the program alone. Ctrl-C keeps the recording; the program is left running
    only when it ignores the signal. Under sudo the program runs as the calling user.

    Raises UsageError, TargetError, PermissionDeniedError without privileges, UnavailableError where
    BPF can't be used.
    """
    require_own_proc()
    options = options or EventOptions()
    [shown] = as_unicode([os.fspath(output)])
    if shown != os.fspath(output):
        raise UsageError(
            "The name of the event file is not UTF-8", shown, "Choose another name for -o."
        )
    if command:
        find_program(
            command, traced=False
        )  # a clear error now; the shell finds it as the user wrote it
    words = list(command)
    with gated(words, stdout, environment) as program, interruptible(), held_back() as let_in:
        targets = [program.process.pid] if program else list(pids)
        beside = list(pids) if program else []
        engine = _core.EventRecorder(
            _request(output, targets, beside, command, options), loadable_bpf_object("events")
        )
        if program:
            program.let_go()
        reason, status, seconds = "interrupted", None, None
        run = _Run(engine, program, pids, options, progress)
        with suppress(KeyboardInterrupt), MarkInbox() as inbox:
            let_in()
            reason = run.wait(inbox)
        if beside or reason in {"duration", "interrupted"}:
            engine.look()
        if program:
            status = program.status(reason)
            seconds = (run.ended or time.monotonic()) - program.released
        end = _finish(engine, program, reason, status)
    return EventRecording(
        Path(output),
        end["reason"],
        end["exit_status"],
        end["events"],
        end["raw_bytes"],
        _disk_bytes(Path(output)),
        end["lost"],
        {int(cpu): number for cpu, number in end["lost_cpus"].items()},
        end["lost_processes"],
        seconds,
        [Note(**note) for note in end["notes"]],
    )


def _finish(
    engine: _core.EventRecorder, program: GatedProgram | None, reason: str, status: int | None
) -> FinishedFields:
    try:
        end: FinishedFields = json.loads(engine.finish(reason, status))
    except FlagfinderError as error:
        if program and program.process.poll() is None:
            error.still_works += (
                f" The program goes on unrecorded, as process {program.process.pid}."
            )
        raise
    return end


def _disk_bytes(path: Path) -> int:
    status = path.stat()
    return min(status.st_size, 512 * status.st_blocks)  # without its holes


def _request(
    output: Path | str,
    targets: Sequence[int],
    beside: Sequence[int],
    command: Sequence[str],
    options: EventOptions,
) -> str:
    fields = {
        "output": os.fspath(output),
        "pids": list(targets),
        "beside": list(beside),
        "everything": options.everything,
        "threads": options.threads,
        "syscalls": options.syscalls,
        "stacks": options.stacks,
        "stack_budget": options.stack_budget,
        "stack_copy": options.stack_copy,
        "buffer_bytes": options.buffer,
        "size_bytes": options.size,
        "mark_on_hang_ns": None
        if options.mark_on_hang is None
        else int(options.mark_on_hang * 1e9),
        "command": as_unicode(command),
        "network": options.network,
        "host": options.host,
    }
    return json.dumps(fields)


class _Run:
    """A recording while it goes on. ``ended``: when the program did, by the monotonic clock."""

    def __init__(
        self,
        engine: _core.EventRecorder,
        program: GatedProgram | None,
        pids: Sequence[int],
        options: EventOptions,
        progress: Callable[[EventProgress], None] | None,
    ) -> None:
        self._engine = engine
        self._program = program
        self._has_pids = bool(pids)
        self._options = options
        self._progress = progress
        self.ended: float | None = None

    def wait(self, inbox: MarkInbox) -> str:
        """Waits until the recording is to end. Returns why."""
        seconds = self._options.duration
        deadline = None if seconds is None else time.monotonic() + seconds
        shown = time.monotonic()
        handle = None
        if self._program:
            with suppress(ProcessLookupError):  # it has ended already
                handle = os.pidfd_open(self._program.process.pid)
        try:
            while not self._engine.failed():
                left = (
                    _PATIENCE if deadline is None else min(_PATIENCE, deadline - time.monotonic())
                )
                if left <= 0:
                    return "duration"
                program = [] if handle is None or self.ended else [handle]
                ready = select.select([*program, *inbox.handles()], [], [], left)[0]
                for text in inbox.take():
                    self._engine.mark(text)
                if self._program and self.ended is None and (handle is None or handle in ready):
                    self.ended = time.monotonic()
                if reason := self._over():
                    return reason
                if self._progress and time.monotonic() > shown + _SHOWN_EVERY:
                    shown = time.monotonic()
                    self._progress(
                        EventProgress(*self._engine.progress(), outlives=self.ended is not None)
                    )
            return "interrupted"
        finally:
            if handle is not None:
                os.close(handle)

    def _over(self) -> str:
        """Why the recording is to end, if nothing is left to be recorded."""
        if self._program:
            # The kernel forgets a process a moment before its parent can see that it has ended.
            over = self.ended is not None and (not self._options.outlive or self._engine.is_over())
            return "program-ended" if over else ""
        return "target-ended" if self._has_pids and self._engine.is_over() else ""


@dataclass(frozen=True)
class EventImport:
    """What an import came to: events taken over, events that their recorder lost, by name records
    of tracepoints that say nothing to a graph.
    """

    path: Path
    events: int
    lost: int
    skipped: Mapping[str, int]


def import_events(recording: Path | str, output: Path | str) -> EventImport:
    """Makes a file of events of what ``perf record -a`` or Perfetto (linux.ftrace) wrote, as far as
    it has tracepoints of the scheduler, system calls (raw_syscalls), signals and timers (perf's
    only). Times are the recorder's clock. There are no stacks, and no names of descriptors.

    Raises BadTraceError for a file that is no such recording.
    """
    fields = json.loads(_core.import_events(os.fspath(recording), os.fspath(output)))
    return EventImport(Path(output), fields["events"], fields["lost"], fields["skipped"])


@dataclass(frozen=True)
class EventFindings:
    """What a check found, a line each. ``violations``: what is wrong; none, and the file is sound.
    ``notes``: what it can't know through no fault of its own, such as switches that the kernel
    does not report.
    """

    violations: tuple[str, ...]
    notes: tuple[str, ...]


class EventFile:
    """A recording of events. Raises BadTraceError for a file that is no recording, is newer, or has
    lost its description.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.core = _core.EventFile(os.fspath(path))

    def summary(self) -> EventsInfoFields:
        """How it was recorded, events by kind, wakes by context, losses by CPU, marks. Reads the
        whole file.
        """
        fields: EventsInfoFields = json.loads(self.core.summary())
        return fields

    def check(self) -> EventFindings:
        """Reads the whole file and judges it."""
        return EventFindings(
            **{name: tuple(lines) for name, lines in json.loads(self.core.check()).items()}
        )

    def dump(self, tid: int | None = None, start: int = 0, limit: int = 1000) -> list[str]:
        """Events as text, those that concern thread ``tid`` (None: all), from the time ``start``
        (ns) on.
        """
        return self.core.dump(tid or 0, start, limit)
