# SPDX-License-Identifier: MIT
"""The tracer ``lldb``: steps one thread of a program, from a function on, in the modules that are
the program's own.

Slow (about a thousand instructions a second), and it sees a part only; it goes where DynamoRIO
can't: into a running process, and programs that don't run under it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from flagfinder.record.record import check_output
from flagfinder.record.recorder import Progress, Recording
from flagfinder.record.stepping import Sink, StepOptions
from flagfinder.shared.errors import (
    FlagfinderError,
    PermissionDeniedError,
    TargetError,
    UnavailableError,
    UsageError,
)
from flagfinder.shared.gated import GatedProgram, gated
from flagfinder.shared.interruption import interruptible
from flagfinder.shared.lldb_helper import LldbHelper
from flagfinder.shared.proc_lines import proc_lines
from flagfinder.shared.target import check_machine, find_program

_STILL_WORKS = "`flagfinder record --tracer dynamorio` and `flagfinder spin PID` need no lldb."
_HEAD = struct.Struct("<cI")
_FIRST = "main"
_LISTEN = 0.2  # seconds between two looks at wishes to stop
# Or the first call of a library's function would be one of the dynamic loader, which is stepped
# over.
_SETTINGS = ("LD_BIND_NOW=1",)


def record_lldb(
    command: Sequence[str],
    pid: int | None,
    output: str | os.PathLike[str],
    options: StepOptions | None = None,
    *,
    progress: Callable[[Progress], None] | None = None,
) -> Recording:
    """Records a part of a program that is started, or of process ``pid``, with lldb.

    Ctrl-C, or SIGTERM, ends the recording and keeps it. A process that was attached to is let go.
    Raises UsageError, TargetError, PermissionDeniedError or UnavailableError when it can't begin.
    """
    chosen = options or StepOptions()
    check_machine()
    path = Path(output)
    check_output(path)
    if pid is None:
        find_program(command)
        chosen = StepOptions(**{**vars(chosen), "from_break": chosen.from_break or _FIRST})
    else:
        _check_process(pid)
    words = [] if pid is not None else command
    with gated(words, settings=_SETTINGS, one_exec=True) as program, interruptible():
        sink = Sink(command, chosen)
        recorder = _Recorder(sink, chosen, program, progress)
        number = pid if pid is not None else _pid_of(program)
        why = recorder.run(number)
        status, by = _fate(program, why, chosen)
        return sink.finish(path, why, status, by)


class _Recorder:
    def __init__(
        self,
        sink: Sink,
        options: StepOptions,
        program: GatedProgram | None,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self._sink = sink
        self._options = options
        self._program = program
        self._progress = progress
        self._stopped: str | None = None
        self._interrupted = False
        self._deadline: float | None = None
        self._taken = 0
        self._helper = LldbHelper("ff_recorder", _STILL_WORKS)

    def run(self, pid: int) -> str:
        """Feeds the sink until the debugger ends; says why it ended."""
        wanted = {
            "pid": pid,
            "gated": self._program is not None,
            "from": self._options.from_break,
            "thread": self._options.thread,
            "steps": self._options.max_steps,
        }
        why = None
        with self._interruptions():
            self._helper.tell(json.dumps(wanted))
            try:
                while (frame := self._frame()) is not None:
                    why = self._take(pid, *frame) or why
            finally:
                self._helper.let_go()
                os.close(self._helper.source)
                words = self._helper.last_words()
                self._helper.close()
        if why is None and not self._sink.has_begun:
            if self._stopped is not None:
                raise KeyboardInterrupt
            raise UnavailableError(
                "lldb ended before the recording began",
                words,
                "Look at what it says.",
                _STILL_WORKS,
            )
        if why is None and self._stopped is None:
            self._sink.note("lost", f"lldb ended early: {words}")
        return why if why == "target-ended" else self._stopped or why or "interrupted"

    @contextlib.contextmanager
    def _interruptions(self) -> Iterator[None]:
        """Ctrl-C only leaves word meanwhile: in the middle of a message it would lose where the
        next one begins.
        """
        if threading.current_thread() is not threading.main_thread():
            yield  # Python delivers signals to the main thread only
            return
        previous = signal.signal(signal.SIGINT, lambda *_: setattr(self, "_interrupted", True))
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, previous)

    def _stop(self, why: str) -> None:
        self._stopped = self._stopped or why
        self._helper.let_go()

    def _frame(self) -> tuple[bytes, bytes] | None:
        head = self._read(_HEAD.size)
        if head is None:
            return None
        letter, size = _HEAD.unpack(head)
        payload = self._read(size)
        return None if payload is None else (letter, payload)

    def _read(self, size: int) -> bytes | None:
        """So many bytes; None at the end. Wishes to stop are heard while it waits."""
        got = bytearray()
        while len(got) < size:
            now = time.monotonic()
            if self._interrupted:
                self._interrupted = False
                self._stop("interrupted")
            if self._deadline is not None and now >= self._deadline:
                self._deadline = None
                self._stop("limit")
            left = _LISTEN if self._deadline is None else min(_LISTEN, self._deadline - now)
            if select.select([self._helper.source], [], [], left)[0]:
                part = os.read(self._helper.source, size - len(got))
                if not part:
                    return None
                got += part
        return bytes(got)

    def _take(self, pid: int, letter: bytes, payload: bytes) -> str | None:
        if letter == b"W":
            self._sink.feed(int.from_bytes(payload[:8], "little"), payload[8:])
            self._taken += len(payload)
            if self._progress is not None:
                self._progress(Progress(self._sink.ns, 0, self._taken))
            return None
        said = json.loads(payload)
        match said.pop("do"):
            case "gate":
                assert self._program is not None
                self._program.release()
                self._answer(True)
            case "begin":
                if self._options.stop_after is not None:
                    self._deadline = time.monotonic() + self._options.stop_after
                self._sink.begin(said)
                self._answer(True)
            case "modules":
                self._answer(self._sink.modules())
            case "plan":
                self._answer(self._sink.plan(said["pc"], bytes.fromhex(said["code"])))
            case "refused":
                raise _refusal(said["kind"], said["found"], pid, self._options)
            case "end":
                why: str = said["why"]
                return why
        return None

    def _answer(self, answer: object) -> None:
        self._helper.tell(json.dumps(answer))


def _pid_of(program: GatedProgram | None) -> int:
    assert program is not None
    return program.process.pid


def _check_process(pid: int) -> None:
    if not Path(f"/proc/{pid}").is_dir():
        raise TargetError(
            "The process can't be recorded",
            f"there is no process {pid}",
            "Check the number: ps -e.",
        )


def _fate(
    program: GatedProgram | None, why: str, options: StepOptions
) -> tuple[int | None, int | None]:
    """What becomes of a program that was started: exit status, signal; None while it runs."""
    if program is None:
        return None, None
    process = program.process
    if why in ("limit", "interrupted") and options.then == "kill":
        process.kill()
        process.wait()
        return None, None
    if why in ("limit", "interrupted"):
        return None, None
    try:
        code = process.wait()
    except KeyboardInterrupt:
        return None, None
    return (code, None) if code >= 0 else (None, -code)


def _refusal(kind: str, found: str, pid: int, options: StepOptions) -> FlagfinderError:
    place = options.from_break
    match kind:
        case "symbol":
            return UsageError(
                f"The recording can't begin at {place}",
                found,
                "Check the name with `nm -C PROGRAM`; where it has no symbols give "
                "MODULE+0xOFFSET.",
                _STILL_WORKS,
            )
        case "unreached":
            return TargetError(
                f"The recording can't begin at {place}",
                f"{found} {place} was called",
                "Choose a function that this run calls.",
                _STILL_WORKS,
            )
        case "thread":
            return UsageError(
                "The thread can't be recorded", found, f"See `ls /proc/{pid}/task`.", _STILL_WORKS
            )
        case "traps":
            return TargetError(
                f"Process {pid} can't be recorded under lldb",
                found,
                "Record it from its start: `flagfinder record -o FILE -- PROGRAM`. `flagfinder "
                "spin` looks at a copy of the thread.",
                _STILL_WORKS,
            )
    tracer = _tracer_of(pid)
    if tracer:
        found = f"process {tracer} traces it already ({found})"
    return PermissionDeniedError(
        f"lldb may not attach to process {pid}",
        found,
        "End other debuggers of it; run as root, or as its user where "
        "/proc/sys/kernel/yama/ptrace_scope is 0.",
        "`flagfinder record --tracer dynamorio -- PROGRAM` needs no ptrace.",
    )


def _tracer_of(pid: int) -> int:
    try:
        lines = proc_lines(f"/proc/{pid}/status")
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("TracerPid:")), 0)
