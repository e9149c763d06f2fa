# SPDX-License-Identifier: MIT
"""Reading a recording: its threads, the blocks they ran, what loads read, the syscalls they made.

``open_trace`` maps the file; arrays (of numpy, the extra ``arrays``) are filled by the engine and
handed over without a copy. Asking again reads again: keep the array. All pcs and addresses are
run-time addresses; ``module`` + ``offset`` is what compares across runs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from flagfinder import _core
from flagfinder.shared.extra import need_numpy
from flagfinder.shared.notes import Note
from flagfinder.shared.record import dataclass

if TYPE_CHECKING:
    # Importing numpy takes longer than all of flagfinder, and most commands touch no array.
    import numpy as np
    from numpy.typing import NDArray

    from flagfinder.trace.fields import EndFields, InfoFields


class BlockTable(NamedTuple):
    """The blocks of one process, by block id (row 0 is no block). One row a block, columns of equal
    length.

    ``module`` is an index into ``Process.modules`` or -1 (JIT code, vdso); ``offset`` is then the
    address. ``size`` is in bytes, ``instructions`` counts them.
    """

    pc: NDArray[np.uint64]
    module: NDArray[np.int32]
    offset: NDArray[np.uint64]
    size: NDArray[np.uint32]
    instructions: NDArray[np.uint32]


class Values(NamedTuple):
    """Loads of one thread in the order they ran: columns of equal length, empty at level ``flow``.

    ``flow_index`` is the row in ``Thread.blocks()`` of the block the load ran in; ``pc`` its
    instruction. ``address`` is 0 and ``address_known`` False where the engine could not compute it.
    ``size`` is in bytes, ``value`` is zero-extended.
    """

    flow_index: NDArray[np.uint64]
    pc: NDArray[np.uint64]
    address: NDArray[np.uint64]
    address_known: NDArray[np.bool_]
    size: NDArray[np.uint8]
    value: NDArray[np.uint64]


class Syscalls(NamedTuple):
    """Syscalls of one thread: columns of equal length, ``args`` with six columns.

    ``flow_index`` is how many blocks ran before the call; ``enter`` and ``exit`` are
    CLOCK_MONOTONIC ns; a call that had not returned when the recording ended has ``returned`` False
    and ``exit`` and ``result`` 0.
    """

    flow_index: NDArray[np.uint64]
    number: NDArray[np.uint32]
    enter: NDArray[np.uint64]
    exit: NDArray[np.uint64]
    args: NDArray[np.uint64]
    result: NDArray[np.int64]
    returned: NDArray[np.bool_]


@dataclass(frozen=True)
class Module:
    """A mapped file. ``base`` is the run-time address of offset 0; ``build_id`` is hex, empty when
    it has none.
    """

    path: str
    build_id: str
    base: int
    start: int
    end: int

    @property
    def name(self) -> str:
        """The file's name without its directory."""
        return os.path.basename(self.path)  # noqa: PTH119  # may be "[vdso]"


@dataclass(frozen=True)
class FlowSummary:
    """What a thread's flow holds, counted in one pass. ``gaps`` counts places where flow was
    lost.
    """

    blocks: int
    syscalls: int
    signals: int
    gaps: int


class Thread:
    def __init__(self, core: _core.Thread, process: Process) -> None:
        self._core = core
        self.process = process
        self.tid = core.tid
        self.creator_tid = core.creator_tid
        self.name = core.name

    def __repr__(self) -> str:
        return f"<Thread {self.tid} {self.name!r}>"

    def blocks(self) -> NDArray[np.uint32]:
        """The ids of the blocks it ran, in order: rows of ``process.block_table``."""
        need_numpy()
        return self._core.blocks()

    def values(self) -> Values:
        """What its loads read, with addresses recomputed by the evaluator."""
        need_numpy()
        return Values(*self._core.values())

    def syscalls(self) -> Syscalls:
        need_numpy()
        return Syscalls(*self._core.syscalls())

    def summary(self) -> FlowSummary:
        """Counts of what it did; one pass over its flow in bounded memory."""
        return FlowSummary(*self._core.summary())


class Process:
    """One image of a recorded process: what runs between two execs, with modules and blocks of its
    own.

    ``image`` counts the images of the process from 1. ``replaced``: it called exec, and another one
    took its place.
    """

    def __init__(self, core: _core.Process) -> None:
        self._core = core
        self.pid = core.pid
        self.parent_pid = core.parent_pid
        self.image = core.image
        self.replaced = core.replaced
        self.path = core.path

    def __repr__(self) -> str:
        return f"<Process {self.pid} {self.path!r}>"

    @cached_property
    def threads(self) -> tuple[Thread, ...]:
        """Its threads, in order of their start."""
        return tuple(Thread(core, self) for core in self._core.threads())

    @cached_property
    def modules(self) -> tuple[Module, ...]:
        """The files it mapped, unloaded ones included."""
        return tuple(Module(*fields) for fields in self._core.modules())

    @cached_property
    def block_table(self) -> BlockTable:
        need_numpy()
        return BlockTable(*self._core.block_table())


class Trace:
    """A recording. ``core`` is the engine's handle, for the other stages."""

    def __init__(self, path: Path, core: _core.Trace) -> None:
        self.path = path
        self.core = core
        self.info: InfoFields = json.loads(core.info_json())
        self.end: EndFields | None = json.loads(core.end_json() or "null")

    def __repr__(self) -> str:
        return f"<Trace {str(self.path)!r}>"

    @property
    def level(self) -> str:
        """``flow`` or ``values``."""
        return str(self.info["level"])

    @property
    def command(self) -> Sequence[str]:
        return list(self.info["command"])

    @property
    def is_complete(self) -> bool:
        """Whether the recorder closed the file in order. If not, all that reached the file is still
        here.
        """
        return self.core.is_complete

    @cached_property
    def notes(self) -> tuple[Note, ...]:
        """Fallbacks, losses and warnings of the recording."""
        return tuple(Note(level, text) for level, text in self.core.notes())

    @cached_property
    def processes(self) -> tuple[Process, ...]:
        """The images of the recorded processes, in the order in which they began."""
        return tuple(Process(core) for core in self.core.processes())

    @property
    def threads(self) -> tuple[Thread, ...]:
        return tuple(thread for process in self.processes for thread in process.threads)

    def check(self) -> tuple[str, ...]:
        """Runs the invariant checker; one line for each violation, empty for a sound trace."""
        return tuple(self.core.check())

    def dump(
        self, what: str, tid: int | None, start: int, limit: int, write: Callable[[str], object]
    ) -> None:
        """Writes a stream as text through ``write``, a bounded piece at a time.

        ``what`` is ``flow``, ``values``, ``events``, ``blocks`` or ``modules``. ``start`` is a flow
        position (bytes, as shown in front of each line), ``limit`` a number of lines for each
        thread, or process for tables.
        """
        self.core.dump(what, tid, start, limit, write)


def open_trace(path: str | os.PathLike[str]) -> Trace:
    """Opens a recording. Raises BadTraceError if the file is no trace, FlagfinderError if it can't
    be read.
    """
    return Trace(Path(path), _core.Trace.open(os.fspath(path)))
