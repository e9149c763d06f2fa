"""Watching words of a live process: who reads and writes them, from where, and which values.

In: a pid and what to watch. Out: events as JSON lines, in order of time; ``docs/watch-format.md`` describes them.
The process is never stopped. Values are racy: another thread may write between an access and its trap.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal

from flagfinder import _core
from flagfinder.bpf_build import bpf_object

SCHEMA = "flagfinder.watch/1"
# Only backends that work are offered.
Backend = Literal["perf"]
BACKENDS: tuple[Backend, ...] = ("perf",)
_PATIENCE = 0.05  # seconds that Ctrl-C may go unnoticed


@dataclass(frozen=True)
class WatchRequest:
    """What to watch.

    ``words`` and ``sites`` are objects as ``core/watch/src/request.rs`` reads them; functions of this module make
    them. ``reads`` also traps reads, which slows a spinning reader down ten thousand times; writes alone cost readers
    nothing.
    ``until`` is ``write``, ``read``, ``value==N`` (or ``!= < <= > >=``) or a number of events.
    """

    words: Sequence[Mapping[str, Any]] = ()
    sites: Sequence[Mapping[str, Any]] = ()
    reads: bool = False
    until: str | None = None

    def to_json(self) -> str:
        """What the engine reads."""
        fields = {"words": list(self.words), "sites": list(self.sites), "reads": self.reads, "until": self.until}
        return json.dumps(fields)


def symbol_word(module: str | None, symbol: str, size: int | None = None, tid: int | None = None) -> dict[str, Any]:
    """A variable, in the image named by file name or path. Thread-local ones need ``tid``."""
    return {"by": "symbol", "module": module, "symbol": symbol, "size": size, "tid": tid}


def expression_word(
    text: str, module: str | None = None, size: int | None = None, tid: int | None = None
) -> dict[str, Any]:
    """An access path such as ``pool->workers[2].state``, followed once, when the watch starts. Needs DWARF."""
    return {"by": "expression", "module": module, "text": text, "size": size, "tid": tid}


def address_word(address: int, size: int) -> dict[str, Any]:
    """A run-time address."""
    return {"by": "address", "address": address, "size": size}


def module_word(module: str, offset: int, size: int) -> dict[str, Any]:
    """An ELF virtual address in a module."""
    return {"by": "module", "module": module, "offset": offset, "size": size}


def tls_word(module: str, offset: int, size: int, tid: int) -> dict[str, Any]:
    """An offset in a module's thread-local block of one thread."""
    return {"by": "tls", "module": module, "offset": offset, "size": size, "tid": tid}


def site(module: str, offset: int) -> dict[str, Any]:
    """An instruction to hook: its ELF virtual address in a module."""
    return {"module": module, "offset": offset}


@dataclass
class Watch(AbstractContextManager["Watch"]):
    """A running watch. Use it in a ``with``: leaving it removes everything from the kernel.

    ``header`` is the first line of the output, parsed. Raises PermissionDeniedError without CAP_BPF and CAP_PERFMON,
    UnavailableError when this machine can't, FlagfinderError when something can't be found or watched.
    """

    pid: int
    request: WatchRequest
    header: dict[str, Any] = field(init=False)
    ending: str | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._core = _core.Watch(self.pid, self.request.to_json(), bpf_object("watch"))
        self.header = json.loads(self._core.header())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._core.close()

    def batches(self, duration: float | None = None) -> Iterator[list[str]]:
        """Lists of lines (often empty) until the watch ends by itself or ``duration`` seconds are over.

        ``ending`` then says why: ``until``, ``target-ended`` or ``duration``.
        """
        deadline = None if duration is None else time.monotonic() + duration
        while self.ending is None:
            left = _PATIENCE if deadline is None else deadline - time.monotonic()
            if left <= 0:
                self.ending = "duration"
                break
            lines, self.ending = self._core.poll(min(left, _PATIENCE))
            yield lines
        yield self._core.finish()

    def finish(self) -> list[str]:
        """Ends the watch early; the lines that were still to come."""
        if self.ending is None:
            self.ending = "interrupted"
        return self._core.finish()

    def summary(self) -> dict[str, Any]:
        """The last line of the output, parsed: counts, losses by CPU, why it ended."""
        return {**json.loads(self._core.summary()), "reason": self.ending or "interrupted"}
