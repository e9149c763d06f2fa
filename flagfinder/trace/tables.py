# SPDX-License-Identifier: MIT
"""A recording as tables: its modules, and of each thread blocks, system calls and values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from flagfinder.shared.extra import need_numpy
from flagfinder.trace.trace import Thread, Trace

if TYPE_CHECKING:
    # Importing numpy takes longer than all of flagfinder, and most commands touch no array.
    import numpy as np


def tables(trace: Trace) -> Iterator[tuple[str, dict[str, object]]]:
    """Names and columns. Addresses are run-time addresses; a process is named by ``pid``, a block
    by ``block``.

    A process that called exec is named ``PID.2``, ``PID.3`` and so on from then on.
    """
    need_numpy()
    import numpy as np  # noqa: PLC0415

    yield "modules", _modules(trace)
    for process in trace.processes:
        table = process.block_table._asdict()
        name = str(process.pid) if process.image == 1 else f"{process.pid}.{process.image}"
        yield (
            f"blocks-{name}",
            {"block": np.arange(len(process.block_table.pc), dtype=np.uint32), **table},
        )
        for thread in process.threads:
            yield f"flow-{name}-{thread.tid}", {"block": thread.blocks()}
            yield f"syscalls-{name}-{thread.tid}", _syscalls(thread)
            if trace.level == "values":
                yield f"values-{name}-{thread.tid}", thread.values()._asdict()


def _modules(trace: Trace) -> dict[str, object]:
    import numpy as np  # noqa: PLC0415

    rows = [
        (process, index, module)
        for process in trace.processes
        for index, module in enumerate(process.modules)
    ]

    def addresses(name: str) -> np.ndarray:
        return np.array([getattr(module, name) for _, _, module in rows], dtype=np.uint64)

    return {
        "pid": np.array([process.pid for process, _, _ in rows], dtype=np.uint32),
        "image": np.array([process.image for process, _, _ in rows], dtype=np.uint32),
        "module": np.array([index for _, index, _ in rows], dtype=np.int32),
        "path": [module.path for _, _, module in rows],
        "build_id": [module.build_id for _, _, module in rows],
        "base": addresses("base"),
        "start": addresses("start"),
        "end": addresses("end"),
    }


def _syscalls(thread: Thread) -> dict[str, object]:
    table = thread.syscalls()._asdict()
    arguments = table.pop("args")
    return {**table, **{f"arg{index}": arguments[:, index] for index in range(6)}}
