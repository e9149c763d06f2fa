# SPDX-License-Identifier: MIT
"""Waits and delays summed up: counted by the kernel while they happen, or from a recording.

In: a program, processes, the whole machine, or a file of events. Out: how long threads were
blocked, by thread, call and stack; how long they were ready without a processor, and who had it.
The kernel's counting needs CAP_BPF and CAP_PERFMON. Nothing runs in the target.
"""

from __future__ import annotations

import errno
import json
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from flagfinder import _core
from flagfinder.graph.events import EventFile
from flagfinder.graph.top_question import TopQuestion, as_request
from flagfinder.shared.bpf_build import loadable_bpf_object
from flagfinder.shared.errors import UsageError
from flagfinder.shared.gated import gated
from flagfinder.shared.interruption import held_back, interruptible
from flagfinder.shared.own_proc import require_own_proc
from flagfinder.shared.record import dataclass
from flagfinder.shared.target import find_program

if TYPE_CHECKING:
    from flagfinder.graph.top_fields import TopFields

# Seconds between two looks at where processes have code; at first a program loads its libraries.
_LOOKS_EVERY, _FIRST_LOOKS_EVERY, _FIRST = 0.05, 0.01, 0.5


@dataclass(frozen=True)
class Top:
    """What was counted, and why the counting ended: ``program-ended``, ``target-ended``,
    ``duration``, ``interrupted``, or ``recorded`` of a file. ``exit_status`` is the program's, as a
    shell gives it.
    """

    fields: TopFields
    ended: str
    exit_status: int | None


def top_of_file(
    path: Path | str, question: TopQuestion | None = None, pids: Sequence[int] = ()
) -> Top:
    """Of a recording, of processes ``pids`` only if there are any.

    Raises BadTraceError for a file that is no recording, UsageError if it can't answer the
    question.
    """
    asked = as_request(question or TopQuestion(), pids, False)
    return Top(_named(EventFile(path).core.top(asked)), "recorded", None)


def count_events(
    command: Sequence[str] = (),
    pids: Sequence[int] = (),
    question: TopQuestion | None = None,
    *,
    everything: bool = False,
    duration: float | None = None,
    environment: Sequence[str] = (),
) -> Top:
    """Counts in the kernel until the program or the processes and all that they started have ended,
    the time (seconds) is over, or Ctrl-C (SIGINT, SIGTERM or SIGHUP).

    ``everything`` counts all processes; stacks are those of the named ones. Under sudo the program
    runs as the calling user. Raises UsageError, TargetError, PermissionDeniedError without
    privileges, UnavailableError where BPF can't be used.
    """
    require_own_proc()
    if command and pids:
        raise UsageError("There are two targets", "a program and --pid", "Name one of them.")
    if not (command or pids or everything):
        raise UsageError(
            "There is nothing to count", "no program, no process, not all", "Name one of them."
        )
    for pid in pids:
        if not Path(f"/proc/{pid}").exists():
            raise UsageError("There is no such process", f"pid {pid}", "Check the process id.")
    if command:
        find_program(command, traced=False)
    with gated(list(command), None, environment) as program, interruptible(), held_back() as let_in:
        targets = [program.process.pid] if program else list(pids)
        own = program.process.pid if program else None
        asked = as_request(question or TopQuestion(), targets, everything, own)
        engine = _core.EventCounting(asked, loadable_bpf_object("top"))
        if program:
            program.let_go()
        ended = "interrupted"
        with suppress(KeyboardInterrupt):
            let_in()
            ended = _wait(
                engine, bool(targets), duration, "program-ended" if program else "target-ended"
            )
        fields = _named(engine.finish())
        status = None
        if program:
            if ended == "program-ended":
                program.process.wait()
            status = program.status(ended)
    return Top(fields, ended, status)


def _wait(engine: _core.EventCounting, has_targets: bool, duration: float | None, over: str) -> str:
    begun = time.monotonic()
    deadline = begun + duration if duration is not None else float("inf")
    while True:
        now = time.monotonic()
        left = min(_FIRST_LOOKS_EVERY if now < begun + _FIRST else _LOOKS_EVERY, deadline - now)
        if left <= 0:
            return "duration"
        time.sleep(left)
        if not engine.look() and has_targets:
            return over


def _named(text: str) -> TopFields:
    """The engine's answer, with errors by name: ``ETIMEDOUT``, or ``errno 4711``."""
    fields = json.loads(text)
    for wait in fields["waits"]:
        number = wait["errno"]
        wait["errno"] = None if number is None else errno.errorcode.get(number, f"errno {number}")
    named: TopFields = fields
    return named
