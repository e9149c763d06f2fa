# SPDX-License-Identifier: MIT
"""A recording of one thread that a debugger steps: what it begins with, what it takes, what is
written.

The debugger's half is ``lldb_scripts/ff_step.py``. It runs in a process of its own
(``with_lldb.py``) or in the lldb that somebody debugs with (``lldb_scripts/flagfinder_lldb.py``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flagfinder import _core
from flagfinder.record.recorder import Recording, Then
from flagfinder.shared.machine import as_fields, check_machine_abilities
from flagfinder.shared.notes import Note
from flagfinder.shared.record import dataclass
from flagfinder.trace.trace import open_trace

if TYPE_CHECKING:
    from flagfinder.record.fields import StartFields
    from flagfinder.shared.fields import NoteLevel
    from flagfinder.trace.fields import Ended

MAX_STEPS = 20_000

# Files there belong to the system, not to the program.
_LIBRARY_FOLDERS = ("/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/", "/usr/libexec/", "[")
# How the debugger says that it ended, and what the trace says.
_REASONS: dict[str, Ended] = {"target-ended": "target-ended", "interrupted": "interrupted"}
_ENDINGS = {
    "limit": "it ends after {steps} instructions, as asked (--max-steps)",
    "left": "it ends where the thread returned from the last function of the traced modules",
    "thread-ended": "it ends with the thread",
    "flags": "it ends before an instruction that sets flags which no debugger can set, and that "
    "must not be stepped",
    "traps": "it ends before a call after which a debugger's traps would change what the program "
    "does with SIGTRAP",
}


@dataclass(frozen=True)
class StepOptions:
    """Which part of a run is recorded.

    From the first call of the function ``from_break`` on (or ``module+0xoffset``), at most
    ``max_steps`` instructions of the thread that made it; without it those of ``thread``, or of the
    one that used most processor time. ``into`` names libraries in which to step, too, by file name.
    ``stop_after`` is in seconds; ``then`` says what becomes of a program that was started for it.
    """

    from_break: str | None = None
    max_steps: int = MAX_STEPS
    thread: int | None = None
    into: tuple[str, ...] = ()
    stop_after: float | None = None
    then: Then = "kill"


_Plan = tuple[int, list[tuple[int, int, int, int, bool, int]], list[int], list[int]]


class Sink:
    """Takes what the debugger tells. ``begin`` comes first."""

    def __init__(self, command: Sequence[str], options: StepOptions) -> None:
        self._command = list(command)
        self._options = options
        self._core: _core.Stepping | None = None
        self._facts: StartFields | None = None
        self._notes: list[Note] = []
        self._ts = 0

    @property
    def has_begun(self) -> bool:
        """Whether there is anything to write."""
        return self._core is not None

    @property
    def instructions(self) -> int:
        """How many instructions were taken."""
        return self._core.instructions if self._core else 0

    @property
    def ns(self) -> int:
        """Time from the first instruction to the last one that was handed over."""
        return max(0, self._ts - (self._facts["ts"] if self._facts else 0))

    def begin(self, facts: StartFields) -> None:
        """The thread and where it stands: see ``facts`` in ``lldb_scripts/ff_start.py``."""
        self._facts = facts
        options = {
            "from_break": self._options.from_break,
            "max_steps": self._options.max_steps,
            "stepped_into": self._traced_names(),
            "stack": facts["stack"],
        }
        info = {
            "recorder": _core.VERSION,
            "tracer": "lldb",
            "command": self._command or [facts["path"]],
            "working_directory": str(Path.cwd()),
            "machine": {"doctor": as_fields(check_machine_abilities())},
            "options": options,
        }
        self._core = _core.Stepping(
            json.dumps(info),
            pid=facts["pid"],
            tid=facts["tid"],
            path=facts["path"],
            name=facts["name"],
            pc=facts["pc"],
            sp=facts["sp"],
            fs_base=facts["fs_base"],
            ts=facts["ts"],
        )
        others = facts["threads"] - 1
        begin = (
            f"from {self._options.from_break} on"
            if self._options.from_break
            else "from where it stood on"
        )
        self.note(
            "fallback",
            f"lldb recorded thread {facts['tid']} only, {begin}; {others} more threads were there",
        )
        self.note(
            "fallback",
            f"calls out of {', '.join(self._traced_names())} were stepped over, but for small "
            "functions that make a system call themselves: of the others only the registers at "
            "their return are known",
        )

    def _traced_names(self) -> list[str]:
        assert self._facts is not None
        return [Path(self._facts["path"]).name, *self._options.into]

    def modules(self) -> list[tuple[int, int, bool]]:
        """Start, end, whether to step there, of all code."""
        assert self._core is not None
        return [(start, end, self._is_traced(path)) for start, end, path in self._core.modules()]

    def _is_traced(self, path: str) -> bool:
        assert self._facts is not None
        if path == self._facts["path"] or Path(path).name in self._options.into:
            return True
        return path != "" and not path.startswith(_LIBRARY_FOLDERS)

    def plan(self, pc: int, code: bytes) -> _Plan:
        """What to read around the instruction at ``pc``: see ``core/export/src/plan.rs``."""
        assert self._core is not None
        return self._core.plan(pc, code)

    def feed(self, ts: int, words: bytes) -> None:
        """What ran until ``ts`` (CLOCK_MONOTONIC ns)."""
        assert self._core is not None
        self._ts = ts
        self._core.feed(ts, words)

    def note(self, level: NoteLevel, text: str) -> None:
        """Something to be kept in the trace and shown."""
        assert self._core is not None
        self._notes.append(Note(level, text))
        self._core.note(json.dumps({"level": level, "text": text}))

    def finish(self, path: Path, why: str, status: int | None, signal: int | None) -> Recording:
        """Writes the trace. ``why`` is the debugger's word; without ``status`` and ``signal`` the
        program runs.
        """
        assert self._core is not None
        assert self._facts is not None
        if why in _ENDINGS:
            self.note("warning", _ENDINGS[why].format(steps=self.instructions))
        reason: Ended = _REASONS.get(why, "limit")
        running = status is None and signal is None and why != "target-ended"
        process = {
            "pid": self._facts["pid"],
            "status": status,
            "signal": signal,
            "running": running,
        }
        stored = self._core.finish(
            os.fspath(path), json.dumps({"reason": reason, "processes": [process]})
        )
        blocks = sum(thread.summary().blocks for thread in open_trace(path).threads)
        return Recording(
            path=path,
            pid=self._facts["pid"],
            ended=reason,
            status=status,
            signal=signal,
            threads=1,
            ns=self.ns,
            stored_bytes=stored,
            flow_bytes=2 * blocks,
            values_bytes=0,
            lost_flow_bytes=0,
            lost_value_chunks=0,
            spinning_threads=(),
            notes=tuple(self._notes),
        )
