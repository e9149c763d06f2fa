# SPDX-License-Identifier: MIT
"""What the threads of a live process wait for, with no recording and no good run to compare with.

The engine owns this type (``core/live``). Threads that repeat something are copied, and the
copies looked at; where a copy does not do what its thread does, that is single-stepped for less
than ``budget`` seconds. Blocked threads are described without being touched. Where CPython runs,
its own code is read as well (``interpreters.python``), without stopping anything. A thread whose
code tells what it waits for, or that it waits for nothing, is not stepped, and no words are tried
out in its copy. Of a shell the text of its script tells that (``interpreters.shell``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from flagfinder import _core
from flagfinder.flags.code import Code
from flagfinder.flags.flags import Flag, Loop, flag_from_raw, loop_from_raw
from flagfinder.flags.loop_condition import LoopCondition, of_python
from flagfinder.flags.python_objects import is_interpreters
from flagfinder.flags.python_word import sort_words
from flagfinder.interpreters.python import (
    PythonCode,
    PythonLoop,
    PythonReader,
    Told,
    gil_holder,
    read_python,
    read_python_of_core,
)
from flagfinder.interpreters.shell import ScriptLoop, UnclearError, shell_loop
from flagfinder.interpreters.which import UnreadableError, is_python, runs_python
from flagfinder.live.deadline import (
    DEFAULT_BUDGET,
    DEFAULT_CORE_BUDGET,
    DEFAULT_TIMEOUT,
    Deadline,
    hearer,
    not_asked,
)
from flagfinder.shared.build import build, check_schema
from flagfinder.shared.own_proc import require_own_proc
from flagfinder.shared.record import dataclass, field
from flagfinder.shared.visible import visible

if TYPE_CHECKING:
    from flagfinder.live.fields import SpinClass, SpinFields, SpinThreadFields, Via, WaitFields

DEFAULT_THREADS = 4
# What the engine gives to a word of an interpreter's loop that ended it in a copy.
_MERELY_TRIED = 0.5


@dataclass(frozen=True)
class Wait:
    """What a blocked thread waits for. ``raw`` also has descriptors with their peers, and the futex
    with its owner.

    ``timeout`` is in ns, None for ever; ``stack`` is innermost first, found by scanning, so a frame
    may be stale.
    """

    summary: str
    syscall: str | None
    timeout: int | None
    stack: tuple[Code, ...]
    raw: WaitFields = field(repr=False, compare=False)


@dataclass(frozen=True)
class SpinThread:
    """One thread. ``verdict`` is None when it was not looked at; for ``pause_ms`` it was kept from
    running. ``via`` says where its instructions were seen, in a copy or in place, and
    ``via_reason`` why there; both are None where none were.

    ``considered`` are words that its loop tests, and that are not said to be waited for. ``python``
    is None when it runs no Python, or when that could not be read. ``script`` is the
    loop in which a shell asks something. ``condition`` is what would end its loop, by all flags.
    """

    tid: int
    name: str
    kind: SpinClass
    cpu: float
    verdict: str | None
    reason: str
    loop: Loop | None
    flags: tuple[Flag, ...]
    considered: tuple[Flag, ...]
    notes: tuple[str, ...]
    explain: tuple[str, ...]
    wait: Wait | None
    condition: LoopCondition | None
    python: PythonCode | None
    script: ScriptLoop | None
    steps: int
    pause_ms: float
    via: Via | None = None
    via_reason: str | None = None

    @property
    def flag(self) -> Flag | None:
        """The answer for this thread: the flag at rank 1, or None."""
        return self.flags[0] if self.flags else None

    @property
    def waits_until(self) -> str | None:
        """The answer in Python: the expression that ends the thread's loop, or None where
        nothing supports one.
        """
        loop = self.python_loop
        if loop is None or not (loop.is_answer or (loop.is_likely and not self.flags)):
            return None
        return loop.when

    def __str__(self) -> str:
        """What it polls or waits for, in a line."""
        told = self.reason
        if self.waits_until is not None:
            told = f"its loop ends when {self.waits_until}"
        elif self.flag is not None:
            told = f"polls {self.flag.name}"
            if self.flag.exit_when is not None:
                told += f", until {self.flag.exit_when}"
        elif self.wait is not None:
            told = self.wait.summary
        return f"thread {self.tid} ({self.name}): {told}"

    @property
    def python_loop(self) -> PythonLoop | None:
        """The Python loop that it is in, where one is known."""
        return self.python.loop if self.python is not None else None


@dataclass(frozen=True)
class SpinReport:
    """What ``flagfinder spin`` found: threads with a flag first. ``not_asked`` lists what the time
    limit left no time for. ``raw`` is the JSON object it was made from.
    """

    pid: int
    source: Literal["live", "core"]
    program: str
    budget_ms: int
    threads: tuple[SpinThread, ...]
    notes: tuple[str, ...]
    not_asked: tuple[str, ...]
    raw: SpinFields = field(repr=False, compare=False)

    def __str__(self) -> str:
        """A line for each thread, and notes."""
        lines = [f"process {self.pid} ({self.program})", *map(str, self.threads), *self.notes]
        return "\n".join(map(visible, lines))

    @classmethod
    def from_json(cls, text: str) -> SpinReport:
        """Reads the object that ``flagfinder spin --json`` prints. Raises ValueError on another
        schema.
        """
        return cls.from_raw(json.loads(text))

    @classmethod
    def from_raw(cls, raw: SpinFields) -> SpinReport:
        """The same of the object itself."""
        check_schema(raw, "flagfinder.spin/1")
        return build(
            cls,
            raw,
            source=raw.get("source", "live"),  # older reports have none
            threads=tuple(_thread(item) for item in raw["threads"]),
            not_asked=tuple(raw.get("not_asked", ())),
            raw=raw,
        )

    @property
    def flag(self) -> Flag | None:
        """The answer: the flag at rank 1 of the thread with the best score, or None."""
        return self.threads[0].flag if self.threads else None

    @property
    def found(self) -> bool:
        """Whether it is named what some thread polls: a flag, or an expression in Python."""
        return any(
            thread.flag is not None or thread.waits_until is not None or thread.script is not None
            for thread in self.threads
        )


def spin(
    pid: int,
    threads: Sequence[int] = (),
    *,
    budget: float = DEFAULT_BUDGET,
    most: int = DEFAULT_THREADS,
    in_place: bool = False,
    timeout: float = DEFAULT_TIMEOUT,
    told: Callable[[int, list[int]], object] | None = None,
    so_far: Callable[[str], object] | None = None,
) -> SpinReport:
    """Looks at process ``pid``: at ``threads``, or at up to ``most`` that repeat something.

    Copies are looked at, and a thread is stepped only where its copy does not do what it does, or
    with ``in_place``; then for ``budget`` seconds at most. After ``timeout`` seconds nothing new is
    begun, and the report says what was left out. ``told`` hears the number of threads and which are
    about to be looked at, ``so_far`` JSON of the report as far as it is known. Raises
    PermissionDeniedError without the right to trace, UnavailableError when the process is gone or
    no 64-bit program.
    """
    require_own_proc()
    deadline = Deadline.after(timeout)
    if so_far is not None:
        so_far(_core.spin_at_first(pid))

    loop, unclear = None, None
    if not in_place and (not threads or pid in threads):
        try:
            loop = shell_loop(pid)
        except UnclearError as error:
            unclear = str(error)
    # A shell that its script tells of is not looked at.
    hear = hearer(told if loop is None else None, so_far)

    def engine(by_program: Callable[[int], Told | None] | None = None) -> SpinFields:
        raw: SpinFields = json.loads(
            _core.spin(
                pid, list(threads), budget, most, in_place, deadline.for_engine, hear, by_program
            )
        )
        if unclear is not None:
            raw["notes"].append(unclear)
        return raw

    if loop is not None:
        raw = engine(lambda tid: "known" if tid == pid else None)
        _add_script(raw, loop)
        return SpinReport.from_raw(raw)
    if not runs_python(pid):
        return SpinReport.from_raw(engine())
    if in_place:  # Python's code is not read while its threads are held.
        raw = engine()
        if deadline.is_over:
            not_asked(raw, deadline.over, "the code of its Python")
            return SpinReport.from_raw(raw)
        _add_python(raw, partial(read_python, pid))
        return SpinReport.from_raw(raw)
    with PythonReader(pid) as reader:
        raw = engine(reader.told)
        _add_python(raw, reader.codes)
    return SpinReport.from_raw(raw)


def look_at_core(
    path: str | os.PathLike[str],
    threads: Sequence[int] = (),
    *,
    sysroot: str | os.PathLike[str] | None = None,
    program: str | os.PathLike[str] | None = None,
    budget: float = DEFAULT_CORE_BUDGET,
    timeout: float = DEFAULT_TIMEOUT,
    so_far: Callable[[str], object] | None = None,
) -> SpinReport:
    """The same report of a dead process, from its ELF core file, which may be packed by zstd or
    lz4.

    A copy of each thread is made from the core and goes on for at most ``budget`` seconds; none of
    its system calls is made. ``sysroot`` is where the files of another machine lie, ``program`` the
    executable. ``timeout`` and ``so_far`` as in ``spin``. Raises BadTraceError when it is no core
    of a 64-bit program, is damaged, or when files are not those that the process had.
    """
    files = (
        os.fspath(path),
        None if sysroot is None else os.fspath(sysroot),
        None if program is None else os.fspath(program),
    )
    deadline = Deadline.after(timeout)
    core = _core.CoreMemory(*files)

    def engine(of_program: Sequence[int] = ()) -> SpinFields:
        heard = hearer(None, so_far)
        time = deadline.for_engine
        raw: SpinFields = json.loads(
            _core.look_at_core(*files, list(threads), list(of_program), budget, time, heard)
        )
        return raw

    if not is_python(file for *_, file in core.regions()):
        return SpinReport.from_raw(engine())
    read = partial(read_python_of_core, core, Path(path).stat().st_mtime)
    try:
        codes = read(core.threads)
    except UnreadableError:
        codes = {}
    # Where the source shows the loop, the interpreter's words say no more.
    raw = engine([tid for tid, code in codes.items() if code.loop is not None])
    _add_python(raw, read)
    return SpinReport.from_raw(raw)


def _add_script(raw: SpinFields, loop: ScriptLoop) -> None:
    """What a shell asks, which has one thread."""
    for thread in raw["threads"]:
        if thread["tid"] == raw["pid"]:
            thread["script"] = loop.to_raw()
            thread["class"] = "RepeatedYield"
            thread["reason"] = loop.told


def _add_python(raw: SpinFields, read: Callable[[set[int]], dict[int, PythonCode]]) -> None:
    threads = raw["threads"]
    try:
        codes = read({thread["tid"] for thread in threads if thread["class"] != "LongWait"})
    except UnreadableError as error:
        raw["notes"].append(f"no Python code could be read: {error}")
        return
    holder = gil_holder(codes)
    if holder is not None:
        raw["notes"].append(
            f"thread {holder} held the interpreter's lock (GIL) at all {codes[holder].looks} looks"
        )
    for thread in threads:
        code = codes.get(thread["tid"])
        thread["python"] = code.to_raw() if code is not None else None
    # A lock that goes from thread to thread is not what a thread hangs for.
    is_handed_on = sum(code.gil > 0 for code in codes.values()) > 1
    for thread in threads:
        _add_python_word(thread, is_handed_on=is_handed_on)
    if any(loop is not None and loop.when is not None for loop in map(_loop, threads)):
        threads.sort(key=_tells_little)


def _tells_little(thread: SpinThreadFields) -> int:
    """The place of a thread in the report: 0 is first, for those that tell best what they wait for.

    A word that an interpreter tests while it runs code which asks for nothing is hardly the
    program's, unless the engine is surer of it.
    """
    loop = _loop(thread)
    flag = thread["flags"][0] if thread["flags"] else None
    if loop is not None and loop.is_answer:
        return 0
    if flag is not None and (
        thread["python"] is None or flag["kind"] == "syscall" or flag["confidence"] > _MERELY_TRIED
    ):
        return 0
    waits = loop is not None and loop.when is not None and thread["class"] != "LongWait"
    return 1 if waits else 2


def _add_python_word(thread: SpinThreadFields, *, is_handed_on: bool) -> None:
    """The question of the Python loop decides which of the interpreter's words counts.

    ``is_handed_on``: several threads had the interpreter's lock.
    """
    loop = _loop(thread)
    before = thread["flags"][:1]
    if loop is None or not loop.is_answer:
        if is_handed_on and thread["python"] is not None and before and is_interpreters(before[0]):
            thread["considered"] = [*thread["flags"], *thread["considered"]]
            thread["flags"] = []
            thread["condition"] = None
            thread["verdict"] = "no-flag"
            thread["reason"] = (
                f"{before[0]['name']} is the interpreter's own, and its lock goes from thread to "
                "thread"
            )
        return
    thread["flags"], thread["considered"] = sort_words(thread["flags"], thread["considered"], loop)
    for flag in thread["flags"]:
        flag.setdefault(
            "owed", []
        )  # the engine asked only about the interpreter's words that it ranks itself
        flag.setdefault(
            "owed_by_nobody",
            None if flag["owed"] else "it was not asked about: Python code named it",
        )
    thread["condition"] = of_python(loop, thread["flags"])
    first = thread["flags"][0] if thread["flags"] else None
    if first is not None and first["access_path"] is not None and first["exit_when"] == loop.when:
        thread["verdict"] = "data-flag"
        thread["reason"] = f"the loop polls {first['name']}; it ends when {first['exit_when']}"
    elif first is None and before:
        thread["verdict"] = "no-flag"
        thread["reason"] = (
            f"the interpreter tests {before[0]['name']}, but the Python loop does not ask for it"
        )


def _loop(raw: SpinThreadFields) -> PythonLoop | None:
    return _thread(raw).python_loop


def _thread(raw: SpinThreadFields) -> SpinThread:
    python = raw.get("python")
    return build(
        SpinThread,
        raw,
        kind=raw["class"],
        loop=loop_from_raw(raw.get("loop")),
        flags=tuple(flag_from_raw(item) for item in raw.get("flags") or ()),
        considered=tuple(flag_from_raw(item) for item in raw.get("considered") or ()),
        condition=LoopCondition.from_raw(condition)
        if (condition := raw.get("condition"))
        else None,
        wait=_wait(raw.get("wait")),
        python=PythonCode.from_raw(python) if python else None,
        script=ScriptLoop.from_raw(raw["script"]) if "script" in raw else None,
    )


def _wait(raw: WaitFields | None) -> Wait | None:
    if raw is None:
        return None
    return Wait(
        summary=raw["summary"],
        syscall=raw["syscall"],
        timeout=raw["timeout"],
        stack=tuple(Code.from_raw(item) for item in raw["stack"]),
        raw=raw,
    )
