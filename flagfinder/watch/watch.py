# SPDX-License-Identifier: MIT
"""Watching words of a live process: who reads and writes them, from where, and which values.

In: a pid and what to watch. Out: events as JSON lines, in order of time; ``docs/watch-format.md``
describes them. ``perf`` never stops the process. Values are racy: another thread may write between
an access and its trap.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING

from flagfinder import _core
from flagfinder.shared.bpf_build import loadable_bpf_object
from flagfinder.shared.errors import FlagfinderError, PermissionDeniedError, UnavailableError
from flagfinder.shared.own_proc import require_own_proc
from flagfinder.shared.record import dataclass
from flagfinder.watch.trapper import Trapper, Word, words_of
from flagfinder.watch.with_lldb import LldbTrapper

if TYPE_CHECKING:
    from flagfinder.watch.fields import (
        AddressRequest,
        Backend,
        CountsFields,
        EndFields,
        Ending,
        ExpressionRequest,
        HeaderFields,
        ModuleRequest,
        SiteRequest,
        StartedFields,
        SymbolRequest,
        TlsRequest,
        WordRequest,
    )

BACKENDS: tuple[Backend, ...] = ("perf", "lldb", "frida")
_PATIENCE = 0.05  # seconds that Ctrl-C may go unnoticed


_Starter = Callable[[int, list[Word], bytes], Trapper]
_STARTERS: dict[Backend, _Starter] = {"lldb": LldbTrapper}


@dataclass(frozen=True)
class WatchRequest:
    """What to watch.

    ``words`` and ``sites`` are objects as ``core/watch/src/request.rs`` reads them; functions of
    this module make them. ``reads`` also traps reads, which slows a spinning reader down ten
    thousand times; writes alone cost readers nothing. ``until`` is ``write``, ``read``,
    ``value==N`` (or ``!= < <= > >=``) or a number of events.
    """

    words: Sequence[WordRequest] = ()
    sites: Sequence[SiteRequest] = ()
    reads: bool = False
    until: str | None = None

    def to_json(self) -> str:
        """What the engine reads."""
        fields = {
            "words": list(self.words),
            "sites": list(self.sites),
            "reads": self.reads,
            "until": self.until,
        }
        return json.dumps(fields)


def symbol_word(
    module: str | None, symbol: str, size: int | None = None, tid: int | None = None
) -> SymbolRequest:
    """A variable, in the image named by file name or path. Thread-local ones need ``tid``."""
    return {"by": "symbol", "module": module, "symbol": symbol, "size": size, "tid": tid}


def expression_word(
    text: str, module: str | None = None, size: int | None = None, tid: int | None = None
) -> ExpressionRequest:
    """An access path such as ``pool->workers[2].state``, followed once, when the watch starts.
    Needs DWARF.
    """
    return {"by": "expression", "module": module, "text": text, "size": size, "tid": tid}


def address_word(address: int, size: int) -> AddressRequest:
    """A run-time address."""
    return {"by": "address", "address": address, "size": size}


def module_word(module: str, offset: int, size: int) -> ModuleRequest:
    """An ELF virtual address in a module."""
    return {"by": "module", "module": module, "offset": offset, "size": size}


def tls_word(module: str, offset: int, size: int, tid: int) -> TlsRequest:
    """An offset in a module's thread-local block of one thread."""
    return {"by": "tls", "module": module, "offset": offset, "size": size, "tid": tid}


def site(module: str, offset: int, *, follow: bool = False) -> SiteRequest:
    """An instruction to hook: its ELF virtual address in a module. ``follow``: the words that it
    reads are watched from then on, as long as there are debug registers; their numbers follow those
    of the sites.
    """
    return {"module": module, "offset": offset, "follow": follow}


class Watch(AbstractContextManager["Watch"]):
    """A running watch. Use it in a ``with``: leaving it removes everything from the kernel and from
    the process.

    ``backend`` None means ``perf``, and ``lldb`` where perf can't be used, which ``notes`` say.
    ``trapper`` is a debugger of one's own, or the ``trap`` of a ``FridaProgram``. ``header`` is the
    first line of the output, parsed.
    Raises PermissionDeniedError without CAP_BPF and CAP_PERFMON, UnavailableError when this machine
    can't, FlagfinderError when something can't be found or watched.
    """

    def __init__(
        self,
        pid: int,
        request: WatchRequest,
        backend: Backend | None = None,
        trapper: _Starter | None = None,
    ) -> None:
        require_own_proc()
        self.ending: Ending | None = None
        self._said: list[str] = []
        self._interrupted = False
        self._trapper: Trapper | None = None
        if trapper is not None:
            self._core, self._trapper = _fed(pid, request, backend or "lldb", trapper)
        elif backend is None:
            self._open_best(pid, request)
        else:
            self._open(pid, request, backend)
        started: StartedFields = json.loads(self._core.header())
        self.header: HeaderFields = {**started, "notes": self.notes}

    def _open_best(self, pid: int, request: WatchRequest) -> None:
        try:
            self._open(pid, request, "perf")
        except (PermissionDeniedError, UnavailableError) as refused:
            if request.sites:
                raise
            try:
                self._open(pid, request, "lldb")
            except FlagfinderError:
                raise refused from None
            found = refused.found.splitlines()[0] if refused.found else ""
            self._said.append(
                f"perf can't be used ({refused.what}: {found}); watching with lldb instead, "
                "which stops the process at each access"
            )

    def _open(self, pid: int, request: WatchRequest, backend: Backend) -> None:
        if backend == "perf":
            self._core = _core.Watch(pid, request.to_json(), backend, loadable_bpf_object("watch"))
        else:
            self._core, self._trapper = _fed(pid, request, backend, _STARTERS[backend])

    @property
    def notes(self) -> list[str]:
        """What is done otherwise than asked, or left out, known so far."""
        return [*self._said, *(self._trapper.notes if self._trapper is not None else ())]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._trapper is not None:
            self._trapper.stop()
        self._core.close()

    def batches(self, duration: float | None = None) -> Iterator[list[str]]:
        """Lists of lines (often empty) until the watch ends by itself or ``duration`` seconds are
        over.

        ``ending`` then says why: ``until``, ``target-ended``, ``duration`` or ``interrupted``.
        """
        deadline = None if duration is None else time.monotonic() + duration
        while self.ending is None:
            left = _PATIENCE if deadline is None else deadline - time.monotonic()
            if self._interrupted or left <= 0:
                self.ending = "interrupted" if self._interrupted else "duration"
                break
            patience = min(left, _PATIENCE)
            self._feed(patience)
            lines, self.ending = self._core.poll(patience)
            yield lines
        yield self._rest()

    def _feed(self, patience: float) -> None:
        if self._trapper is not None:
            self._core.feed(self._trapper.take(patience), self._trapper.lost)
            if self._trapper.over:
                self._core.close_feed()

    def _rest(self) -> list[str]:
        if self._trapper is not None:
            self._core.feed(self._trapper.stop(), self._trapper.lost)
        return self._core.finish()

    def interrupt(self) -> None:
        """Makes ``batches`` end soon. For signal handlers, where an exception could lose events on
        their way.
        """
        self._interrupted = True

    def finish(self) -> list[str]:
        """Ends the watch early; the lines that were still to come."""
        if self.ending is None:
            self.ending = "interrupted"
        return self._rest()

    def summary(self) -> EndFields:
        """The last line of the output, parsed: counts, losses by CPU, why it ended."""
        counts: CountsFields = json.loads(self._core.summary())
        return {**counts, "reason": self.ending or "interrupted", "notes": self.notes}


def _fed(
    pid: int, request: WatchRequest, backend: Backend, start: _Starter
) -> tuple[_core.Watch, Trapper]:
    """The engine finds the words, then somebody traps them."""
    core = _core.Watch(pid, request.to_json(), backend, None)
    trapper = start(pid, words_of(json.loads(core.header())), core.config())
    core.armed()
    return core, trapper
