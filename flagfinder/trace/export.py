# SPDX-License-Identifier: MIT
"""Recordings in other tools' formats, and Tenet's traces as recordings.

In: a recording. Out: coverage (drcov), the effect of each instruction (Tenet), what threads asked
of the kernel and when (Perfetto), all of it as tables (Parquet).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from flagfinder import _core
from flagfinder.shared.errors import UsageError
from flagfinder.shared.parquet import write_tables
from flagfinder.shared.record import dataclass
from flagfinder.trace.tables import tables
from flagfinder.trace.trace import Thread, Trace

if TYPE_CHECKING:
    from flagfinder.trace.fields import ExportCounts, ImportCounts

Format = Literal["drcov", "tenet", "perfetto", "parquet"]
FORMATS: tuple[Format, ...] = ("drcov", "tenet", "perfetto", "parquet")
_SUFFIXES: dict[str, Format] = {
    ".drcov": "drcov",
    ".tenet": "tenet",
    ".perfetto-trace": "perfetto",
    ".pftrace": "perfetto",
    ".parquet": "parquet",
}
INSTRUCTIONS = 1_000_000
"""Instructions of a Tenet trace unless told otherwise: its reader takes ten times as many at most.
"""


@dataclass(frozen=True)
class Exported:
    """The files written, and what is in them, by name."""

    paths: list[Path]
    counts: ExportCounts


@dataclass(frozen=True)
class Image:
    """An ELF file, and what was added to its addresses when it was loaded (0: nothing)."""

    path: Path
    base: int = 0


def format_of(path: Path) -> Format:
    """The format that a file's name asks for. Raises UsageError for one that asks for none."""
    try:
        return _SUFFIXES[path.suffix]
    except KeyError:
        raise UsageError(
            "The format to export is not known",
            f"{path.name} ends in none of {', '.join(_SUFFIXES)}",
            "Add --format, or give the file such a name.",
        ) from None


def export_trace(
    trace: Trace,
    path: Path,
    form: Format | None = None,
    tid: int | None = None,
    instructions: int = INSTRUCTIONS,
) -> Exported:
    """Writes the recording, or the part of it that the format can hold.

    ``drcov`` holds one process (that of ``tid``, by default the first), ``tenet`` the last
    ``instructions`` of one thread (``tid``, by default the one with most blocks); ``parquet``
    becomes a folder of tables and needs pyarrow. Raises UsageError when the name tells no format or
    no thread has the number.
    """
    match form or format_of(path):
        case "drcov":
            process = trace.processes.index(_thread(trace, tid).process) if tid else 0
            blocks, modules, outside = _core.export_drcov(trace.core, process, os.fspath(path))
            return Exported(
                [path], {"blocks": blocks, "modules": modules, "blocks_left_out": outside}
            )
        case "tenet":
            thread = (
                _thread(trace, tid)
                if tid
                else max(trace.threads, key=lambda thread: thread.summary().blocks)
            )
            place = (trace.processes.index(thread.process), thread.process.threads.index(thread))
            written, left_out = _core.export_tenet(
                trace.core, *place, instructions, os.fspath(path)
            )
            return Exported(
                [path],
                {"tid": thread.tid, "instructions": written, "instructions_left_out": left_out},
            )
        case "perfetto":
            return Exported([path], {"events": _core.export_perfetto(trace.core, os.fspath(path))})
        case "parquet":
            otherwise = "--format drcov, tenet and perfetto need nothing more."
            files = write_tables(path, tables(trace), otherwise)
            return Exported(files, {"tables": len(files)})


def import_tenet(path: Path, images: Sequence[Image], output: Path) -> ImportCounts:
    """Makes a recording of a Tenet text trace; the code comes from the images.

    Returns how many instructions there were, and how many of them lie outside all images (the
    recording has gaps there). Raises BadTraceError for a file that is no Tenet trace.
    """
    given = [(os.fspath(image.path), image.base) for image in images]
    instructions, outside = _core.import_tenet(os.fspath(path), given, os.fspath(output))
    return {"instructions": instructions, "outside_images": outside}


def _thread(trace: Trace, tid: int) -> Thread:
    # Of several images of a process the last: what ran before is only how it was started.
    for thread in reversed(trace.threads):
        if thread.tid == tid:
            return thread
    known = ", ".join(str(thread.tid) for thread in trace.threads)
    raise UsageError(
        f"No thread has the number {tid}", f"the recording has {known}", "Give --tid one of these."
    )
