# SPDX-License-Identifier: MIT
"""A good and a bad run at their own speed: nothing is recorded.

In: the bad run, as a process or a command, and a command that ends well. Out: the report that
``diff`` makes of two recordings, but for where the runs part. The bad run is asked (``spin``); the
words that it polls are watched in the good run, which tells who writes them.
"""

from __future__ import annotations

import copy
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from flagfinder import _core
from flagfinder.chain.good_run import GoodRun, SeenWord, Wrote, run_well
from flagfinder.flags.code import parse_hex
from flagfinder.flags.flags import Report
from flagfinder.live.apart import LeftBehind, ask_apart
from flagfinder.live.deadline import DEFAULT_TIMEOUT
from flagfinder.live.spin import SpinReport, spin
from flagfinder.live.tree import descendants, end_tree
from flagfinder.shared.errors import PermissionDeniedError, TargetError
from flagfinder.shared.gated import gated
from flagfinder.shared.own_proc import require_own_proc
from flagfinder.shared.record import dataclass

if TYPE_CHECKING:
    from flagfinder.flags.fields import (
        CodeFields,
        DiffFields,
        FlagFields,
        OwedFields,
        ThreadNameFields,
        WriterFields,
    )
    from flagfinder.live.fields import SpinThreadFields

_NEEDED = ("CAP_BPF", "CAP_PERFMON")
_WORDS = 3  # flags whose words are watched
_TRIES = 3  # looks at a bad run that does not poll yet
_WRITERS = 8  # that are told of one flag


@dataclass(frozen=True)
class NativeOptions:
    """``after``: the bad command is asked when it has run for so many seconds. ``environment``:
    NAME=VALUE settings of both programs.
    """

    after: float = 2.0
    environment: tuple[str, ...] = ()


def find_native(
    normal: Sequence[str],
    bad: Sequence[str] | int,
    options: NativeOptions | None = None,
    announce: Callable[[str], None] = lambda _text: None,
) -> Report:
    """Asks ``bad``, a command or a process that hangs already, what it polls, and runs ``normal``
    to see who writes that. A bad command is ended then; a process is left as it is.

    Raises PermissionDeniedError without CAP_BPF and CAP_PERFMON, TargetError when a command ends
    too early, or when a signal ends the good run, and what ``spin`` raises.
    """
    require_own_proc()
    options = options or NativeOptions()
    _require_rights()
    with _bad_run(bad, options, announce) as pid:
        asked = _ask(pid)
        thread = asked.raw["threads"][0] if asked.raw["threads"] else None
        watched = [
            flag for flag in (thread["flags"] if thread else []) if flag["kind"] != "syscall"
        ][:_WORDS]
        if thread is None or not watched:
            return _report(thread, [])
        announce(f"process {asked.pid} polls {watched[0]['name']}; now the good run is watched")
        run = run_well(normal, watched, Path(asked.program).name, options.environment, announce)
    doubts = [*run.notes, *_doubts(run)]
    flags = [_told(flag, run, number, asked, thread) for number, flag in enumerate(watched)]
    # Words that the good run wrote to end its wait come first.
    flags.sort(key=lambda told: not told.ends)
    rest = [flag for flag in thread["flags"] if flag not in watched]
    thread = copy.copy(thread)
    thread["flags"] = [
        {**flag, "rank": rank} for rank, flag in enumerate([*(t.flag for t in flags), *rest], 1)
    ]
    notes = [note for told in flags[:1] for note in told.notes]
    return _report(thread, [*doubts, *notes], flags[0].reader)


def _require_rights() -> None:
    if not all(map(_core.has_capability, _NEEDED)):
        raise PermissionDeniedError(
            "The good run can't be watched",
            f"this user lacks {' and '.join(_NEEDED)}",
            _core.how_to_get_capabilities(list(_NEEDED)),
            "`flagfinder find` without --native records both runs, and needs no privileges.",
        )


@contextmanager
def _bad_run(
    bad: Sequence[str] | int, options: NativeOptions, announce: Callable[[str], None]
) -> Iterator[int]:
    """The process of the bad run, once it hangs."""
    if isinstance(bad, int):
        yield bad
        return
    with gated(bad, settings=options.environment) as program:
        assert program is not None
        program.release()
        process = program.process
        announce(f"the bad run is process {process.pid}")
        try:
            with suppress(subprocess.TimeoutExpired):
                status = process.wait(options.after)
                raise TargetError(
                    "The bad run ended",
                    f"its status was {status} before it was asked",
                    "Name a command that hangs: --spin CMD; or ask it earlier: "
                    "--stop-when-spinning SECONDS.",
                )
            yield process.pid
        finally:
            left = end_tree(process.pid)
            for one in left:
                announce(f"warning: {one}")
            if process.pid not in {one.pid for one in left}:
                process.wait()


def _ask(pid: int) -> SpinReport:
    """The report of the process of the tree that polls, or else of the first."""
    first = None
    for number in range(_TRIES):
        if number:
            time.sleep(1.0)
        for one in [pid, *descendants(pid)]:
            report = _spin(one)
            if report.flag is not None:
                return report
            first = first or report
    assert first is not None
    return first


def _spin(pid: int) -> SpinReport:
    try:
        return SpinReport.from_raw(ask_apart(lambda _: spin(pid).raw, DEFAULT_TIMEOUT))
    except LeftBehind as left:
        longer = f"`flagfinder spin {pid} --timeout SECONDS`"
        raise LeftBehind(left.because, left.where, longer) from None


def _doubts(run: GoodRun) -> list[str]:
    if run.status < 0:
        raise TargetError(
            "The good run did not end well",
            f"it was killed by signal {-run.status}",
            "Name a command that ends by itself: --normal CMD.",
        )
    doubts = []
    if run.status:
        doubts.append(
            f"the good run ended with status {run.status}: if that is a failure, it is the wrong "
            "run to compare with"
        )
    if run.lost:
        doubts.append(f"{run.lost} accesses of the good run were lost")
    return doubts


@dataclass(frozen=True)
class _Told:
    """A flag with what the good run tells of it. ``ends``: a thread wrote a value there that ends
    the wait.
    """

    flag: FlagFields
    ends: bool
    notes: list[str]
    reader: ThreadNameFields | None


def _told(
    flag: FlagFields, run: GoodRun, number: int, asked: SpinReport, thread: SpinThreadFields
) -> _Told:
    now, wanted = parse_hex(flag["value"]["spin"]), parse_hex(flag["value"]["exit"])

    def is_like(tid: int, name: str) -> bool:
        return (tid == run.pid) == (thread["tid"] == asked.pid) and (
            tid == run.pid or name == thread["name"]
        )

    def ending(word: SeenWord) -> Wrote | None:
        """The write that ended the first wait. Later the memory may belong to another object."""
        reads = [read for tid, read in word.readers.items() if is_like(tid, read.thread)]
        begin = min((read.first for read in reads), default=0)
        others = [
            one for one in word.written() if not is_like(one.tid, one.thread) and one.last >= begin
        ]
        writes = [one for one in others if one.value is not None and one.value != now]
        return next((one for one in writes if one.value == wanted), next(iter(writes), None))

    def rank(word: SeenWord) -> tuple[bool, bool]:
        found = ending(word)
        read = any(is_like(tid, read.thread) for tid, read in word.readers.items())
        return read, found is not None and found.value == wanted

    words = sorted(run.words[number].values(), key=rank)
    if not words:
        return _Told(flag, False, [_unread(flag, run.read[number])], None)
    word = words[-1]
    readers: list[ThreadNameFields] = [
        {"tid": tid, "name": read.thread}
        for tid, read in word.readers.items()
        if is_like(tid, read.thread)
    ]
    reader = readers[0] if readers else None
    told = copy.copy(flag)
    told["address"] = {**flag["address"], "normal": hex(word.address)}
    wrote = ending(word)
    if wrote is None:
        text = f"the good run never gave {flag['name']} another value while it was watched"
        return _Told(told, False, [text], reader)
    others = [one for one in word.written() if one != wrote]
    told["writers"] = [_writer(one) for one in [wrote, *others][:_WRITERS]]
    like = _thread_like(wrote, run, asked, flag)
    seen = f"in the good run thread {wrote.tid} ({wrote.thread}) wrote {_value(wrote)} there"
    if like is None:
        told["owed"] = []
        told["owed_by_nobody"] = f"{seen}; no thread here is known to be like it"
    else:
        told["owed"] = [_owed(wrote, like, run, asked)]
        told["owed_by_nobody"] = None
    told["evidence"] = [f"{seen}, watched at its own speed", *flag["evidence"]]
    return _Told(told, wanted is None or wrote.value == wanted, [], reader)


def _unread(flag: FlagFields, read: bool | None) -> str:
    if read is None:
        return f"{flag['name']} could not be watched in the good run"
    return f"the good run never came to the code that reads {flag['name']}"


def _value(wrote: Wrote) -> str:
    return hex(wrote.value) if wrote.value is not None else "something"


def _writer(wrote: Wrote) -> WriterFields:
    return {
        "run": "normal",
        "tid": wrote.tid,
        "thread": wrote.thread,
        "code": wrote.code,
        "value": hex(wrote.value) if wrote.value is not None else None,
        "stack": wrote.stack,
        "count": wrote.count,
    }


def _owed(wrote: Wrote, like: SpinThreadFields, run: GoodRun, asked: SpinReport) -> OwedFields:
    return {
        "pid": asked.pid,
        "tid": like["tid"],
        "name": like["name"],
        "code": wrote.code,
        "value": hex(wrote.value) if wrote.value is not None else None,
        "known": "seen",
        "after": like["wait"]["summary"] if like["wait"] is not None else None,
        "normal": {"pid": run.pid, "tid": wrote.tid, "name": wrote.thread},
    }


def _thread_like(
    wrote: Wrote, run: GoodRun, asked: SpinReport, flag: FlagFields
) -> SpinThreadFields | None:
    """The bad run's thread that corresponds to the one that wrote. The first thread corresponds to
    the first. Of the others it is one of the same name: the one that is to come to the same
    function, or is in the same calls. None: there is none, or more than one.
    """
    threads = asked.raw["threads"]
    if wrote.tid == run.pid:
        return next((thread for thread in threads if thread["tid"] == asked.pid), None)
    named = [t for t in threads if t["tid"] != asked.pid and t["name"] == wrote.thread]
    open_calls = {_function(code) for code in [wrote.code, *wrote.stack]} - {None}
    ahead = {
        o["tid"] for o in flag.get("owed") or () if _function(o["code"]) == _function(wrote.code)
    }

    def shared(thread: SpinThreadFields) -> tuple[bool, int]:
        stack = thread["wait"]["stack"] if thread["wait"] is not None else []
        own = {_function(code) for code in stack if not _is_library(code)}
        return thread["tid"] in ahead, len(open_calls & own)

    best = max(map(shared, named), default=None)
    found = [thread for thread in named if shared(thread) == best]
    return found[0] if len(found) == 1 else None


def _function(code: CodeFields | None) -> str | None:
    return code["symbol"].partition("+0x")[0] if code is not None and code["symbol"] else None


def _is_library(code: CodeFields) -> bool:
    return Path(code["module"] or "").name.startswith(("libc.", "ld-", "libpthread"))


def _report(
    thread: SpinThreadFields | None, notes: list[str], normal: ThreadNameFields | None = None
) -> Report:
    raw: DiffFields = {
        "schema": "flagfinder.diff/1",
        "verdict": (thread["verdict"] if thread else None) or "no-flag",
        "reason": thread["reason"] if thread else "the process has no thread",
        "threads": {
            "normal": normal,
            "spin": {"tid": thread["tid"], "name": thread["name"]} if thread else None,
        },
        "loop": thread["loop"] if thread else None,
        "divergence": None,
        "flags": thread["flags"] if thread else [],
        "considered": thread["considered"] if thread else [],
        "groups": thread["groups"] if thread else [],
        "condition": thread["condition"] if thread else None,
        "notes": [*(thread["notes"] if thread else []), *notes],
        "chains": [],
        "explain": thread["explain"] if thread else [],
    }
    return Report.from_raw(raw)
