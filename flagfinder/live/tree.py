# SPDX-License-Identifier: MIT
"""Processes with what they started, and ``why`` for all of them.

In: process ids. Out: the reports, the most telling first.
"""

# ruff: noqa: PLC0415  # few processes run Python, and its modules take as long as the rest
from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from flagfinder import _core
from flagfinder.interpreters.shell import UnclearError, asked_in_shell
from flagfinder.interpreters.which import UnreadableError, runs_python
from flagfinder.live.deadline import TREE_TIMEOUT, Deadline
from flagfinder.live.why_chain import WhyReport
from flagfinder.shared.own_proc import require_own_proc
from flagfinder.shared.record import dataclass

if TYPE_CHECKING:
    from flagfinder.interpreters.fields import AskedFields, InSourceFields
    from flagfinder.live.fields import LeftProcessFields

Answer = tuple[int, str | None, Sequence[str] | None]
"""Of a process: JSON of its report, or the four parts of why there is none."""

PATIENCE = 6.0  # s, for all processes together: none is begun after that
_BUDGET = 0.3
_PYTHON = 4  # processes whose Python code is read, at the same time
_GLANCES = 64  # processes of which a first look is told
_SHELLS = 64  # processes of which it is asked whether a shell runs them


@dataclass(frozen=True)
class Asked:
    """The reports of some processes, the most telling first; ``notes`` name those that could not be
    looked at.
    """

    reports: tuple[WhyReport, ...]
    notes: tuple[str, ...]


def ask(
    pids: Iterable[int],
    before: Iterable[WhyReport] = (),
    *,
    deadline: Deadline | None = None,
    so_far: Callable[[Answer], object] | None = None,
    patience: float = PATIENCE,
) -> Asked:
    """``why`` for each process that no chain of those asked before led to. At the ``deadline``
    nothing new is begun, nor once ``patience`` is over. ``so_far`` hears answers as they come, of
    which ``asked`` makes the same.
    """
    require_own_proc()
    deadline = deadline or Deadline.after(TREE_TIMEOUT)
    seen = {pid for report in before for pid in _in_chain(report)}
    unseen = [pid for pid in pids if pid not in seen]
    if so_far is not None:
        for pid in unseen[:_GLANCES]:
            so_far((pid, _core.why_at_first(pid), None))
    in_source, unreadable = asked_in_code(unseen)
    answers, left = _core.why_each(
        unseen, json.dumps(in_source), _BUDGET, patience, deadline.for_engine, so_far
    )
    notes = list(unreadable)
    if left:
        why = deadline.over if deadline.is_over else "there are too many"
        notes.append(f"{left} of the processes {'was' if left == 1 else 'were'} not asked: {why}")
    return asked(answers, notes)


def asked(answers: Iterable[Answer], notes: Iterable[str]) -> Asked:
    """What the engine's answers say, and these notes."""
    given = list(answers)
    reports = [WhyReport.from_json(text) for _, text, _ in given if text is not None]
    # That one has ended meanwhile is no news.
    failed = [
        f"process {pid}: {what[0]}: {what[1]}"
        for pid, _, what in given
        if what is not None and Path(f"/proc/{pid}").exists()
    ]
    reports.sort(
        key=lambda report: (not report.tests, not report.found, _only_sleeps(report)),
    )
    return Asked(tuple(reports), (*failed, *notes))


def _only_sleeps(report: WhyReport) -> bool:
    """A process that sleeps by itself explains less than one that waits for another."""
    return report.root.kind == "timer" and report.root.pid == report.pid


def asked_in_code(pids: Sequence[int]) -> tuple[InSourceFields, list[str]]:
    """What threads of these processes ask or are blocked in, by code of Python and of shells; and
    notes on code that could not be read.
    """
    notes: list[str] = []

    def in_python(pid: int) -> InSourceFields:
        from flagfinder.interpreters.python_owed import asked_in_python

        try:
            found, more = asked_in_python(pid)
            notes.extend(more)
            return found
        except UnreadableError as error:
            if Path(f"/proc/{pid}").exists():
                notes.append(f"no Python code of process {pid} could be read: {error}")
            return {"asked": [], "stacks": {}}

    def in_shell(pid: int) -> AskedFields | None:
        try:
            return asked_in_shell(pid)
        except UnclearError as error:
            notes.append(f"process {pid}: {error}")
            return None

    ours = [pid for pid in pids if runs_python(pid)][:_PYTHON]
    found = _all_at_once(in_python, ours) if ours else []
    shells = map(in_shell, pids[:_SHELLS])
    asked = [one for program in found for one in program["asked"]]
    stacks = {tid: frames for program in found for tid, frames in program["stacks"].items()}
    asked += [one for one in shells if one is not None]
    return {"asked": asked, "stacks": stacks}, notes


def _all_at_once(ask: Callable[[int], InSourceFields], pids: Sequence[int]) -> list[InSourceFields]:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_PYTHON) as pool:
        return list(pool.map(ask, pids))


def _in_chain(report: WhyReport) -> set[int]:
    owing = (link.owed_by.pid for link in report.links if link.owed_by is not None)
    return {report.pid, *(link.waiter.pid for link in report.links), *owing}


class Process(NamedTuple):
    """A process that is not taken for another one which gets its number later."""

    pid: int
    started: int  # the kernel's ticks since boot

    @classmethod
    def of(cls, pid: int) -> Process:
        """Raises OSError when there is none."""
        return Stat.of(pid).process

    def send(self, number: signal.Signals) -> None:
        """Raises ProcessLookupError once it is gone, PermissionError where it may not be signalled.

        kill(2) would reach whoever has the number by then, and the whole process of a thread that
        has it.
        """
        handle = os.pidfd_open(self.pid)
        try:
            if Process.of(self.pid) != self:
                raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
            signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def descendants(pid: int) -> list[int]:
    """Living processes that it started, and those that these started, by generations."""
    return [one.pid for one in descended(pid)]


def descended(pid: int) -> list[Process]:
    """The same, to be signalled."""
    known = list(_living())
    found: list[Process] = []
    above = {pid}
    while above:
        below = {one.process for one in known if one.parent in above} - set(found)
        found += sorted(below)
        above = {one.pid for one in below}
    return found


def end_tree(pid: int) -> list[LeftProcess]:
    """Kills a process of ours and all that it started. They are stopped first: what is killed one
    by one may start others meanwhile. Returns those that may not be killed.
    """
    tree: list[Process] = []
    with contextlib.suppress(OSError):
        first = Process.of(pid)
        while new := [one for one in (first, *descended(pid)) if one not in tree]:
            tree += new
            _send(new, signal.SIGSTOP)
    return [LeftProcess.of(one.pid, NOT_OURS) for one in _send(tree, signal.SIGKILL)]


NOT_OURS = "it belongs to another user"


@dataclass(frozen=True)
class LeftProcess:
    """A process that could not be ended."""

    pid: int
    name: str
    user: str
    why: str

    @classmethod
    def of(cls, pid: int, why: str) -> LeftProcess:
        """With what /proc tells of it."""
        import pwd

        name, user = "", "?"
        with contextlib.suppress(OSError):
            process = Path(f"/proc/{pid}")
            name = (process / "comm").read_text(encoding="utf-8", errors="replace").rstrip("\n")
            number = process.stat().st_uid
            user = str(number)
            with contextlib.suppress(KeyError):
                user = pwd.getpwuid(number).pw_name
        return cls(pid, name, user, why)

    def __str__(self) -> str:
        return f"process {self.pid} ({self.name}, user {self.user}) was not ended: {self.why}"

    def to_raw(self) -> LeftProcessFields:
        """As ``--json`` prints it."""
        return {"pid": self.pid, "name": self.name, "user": self.user, "why": self.why}


def _send(processes: Iterable[Process], number: signal.Signals) -> list[Process]:
    """Those that it may not be sent to."""
    refused = []
    for process in processes:
        try:
            process.send(number)
        except ProcessLookupError:
            continue
        except PermissionError:
            refused.append(process)
    return refused


class Stat(NamedTuple):
    """What /proc tells of a process. ``state``: that of its first thread."""

    process: Process
    parent: int
    state: str

    @classmethod
    def of(cls, pid: int) -> Stat:
        """Raises ProcessLookupError when there is none."""
        try:
            text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError as error:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH)) from error
        state, parent, *others = text.rpartition(")")[2].split()
        return cls(Process(pid, int(others[17])), int(parent), state)


def stats() -> Iterator[Stat]:
    """Of each process."""
    for name in os.listdir("/proc"):  # noqa: PTH208  no objects here
        if name.isdigit():
            with contextlib.suppress(OSError):
                yield Stat.of(int(name))


def _living() -> Iterator[Stat]:
    for one in stats():
        with contextlib.suppress(OSError):
            if one.state not in "ZX" or _others_live(Path(f"/proc/{one.process.pid}")):
                yield one


def _others_live(process: Path) -> bool:
    """The first thread may end before the others (``pthread_exit`` in ``main``)."""
    return any(task.name != process.name for task in (process / "task").iterdir())
