# SPDX-License-Identifier: MIT
"""The memory of a process as an ELF core file, for readers that need the process' own program in
``/proc/PID/exe``, or in a core file that has all parts of it.

A tracer that loads the program itself is what that names, and so is ``ld.so`` where it was started
by hand. The file has what changes (private writable memory) and the interpreter's constants; for
the rest it has the names of the mapped files. The process runs on, so a page may be newer than the
next; who reads that must expect it.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Collection, Sequence
from itertools import starmap
from pathlib import Path
from typing import BinaryIO, Protocol

from flagfinder import _core
from flagfinder.shared.record import dataclass

MOST_BYTES = 1 << 29  # of memory: copied within half a second
_MOST_REGIONS = (1 << 16) - 2  # the header counts them in 16 bits
_AT_ONCE = 1 << 20
_PAGE = 4096
_CORE, _X86_64, _LOAD, _NOTE = 4, 62, 1, 4
_FLAGS = {"r": 4, "w": 2, "x": 1}
_HEADER, _PROGRAM_HEADER = 64, 56
_FLAGS = {"r": 4, "w": 2, "x": 1}
# Notes, and the fields of their structures, as in elfcore.h of Linux for x86-64.
_PRSTATUS, _PRPSINFO, _FILE = 1, 3, 0x46494C45
_PRSTATUS_SIZE, _PRSTATUS_PID = 336, 32
_PRPSINFO_SIZE, _PRPSINFO_PID = 136, 24


class TooLargeError(Exception):
    """The process has more memory of its own than is copied."""


@dataclass(frozen=True)
class _Region:
    start: int
    end: int
    access: str  # as in /proc/PID/maps: "rw-p"
    offset: int
    file: str

    @property
    def size(self) -> int:
        return self.end - self.start

    def is_kept(self, interpreter: Collection[str]) -> bool:
        """Its bytes are in the file: they are the process' own, or the interpreter's constants."""
        own = self.access.startswith("rw") and self.access.endswith("p")
        return own or (self.access == "r--p" and self.file in interpreter)


class Source(Protocol):
    """Whose memory is written."""

    @property
    def pid(self) -> int: ...
    @property
    def threads(self) -> Sequence[int]: ...
    def regions(self) -> Sequence[tuple[int, int, str, int, str]]:
        """Start, end, access, offset in a file, that file or an empty text."""

    def read(self, address: int, size: int, /) -> bytes: ...


class Live:
    """A live process. Raises OSError where it can't be read."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._memory = _core.ProcessMemory(pid)

    @property
    def threads(self) -> list[int]:
        """Their ids, as seen here."""
        return [int(task.name) for task in Path(f"/proc/{self.pid}/task").iterdir()]

    def regions(self) -> list[tuple[int, int, str, int, str]]:
        """As ``/proc/PID/maps`` lists them."""
        found = []
        with Path(f"/proc/{self.pid}/maps").open("rb") as maps:
            for line in maps:
                words = os.fsdecode(line.rstrip(b"\n")).split(maxsplit=5)
                start, end = (int(side, 16) for side in words[0].split("-"))
                if end < 1 << 63:  # not the page of the kernel's that every process has
                    file = words[5] if len(words) > 5 else ""
                    found.append((start, end, words[1], int(words[2], 16), file))
        return found

    def read(self, address: int, size: int, /) -> bytes:
        """As many bytes as can be read."""
        return self._memory.read(address, size)


def write_image(process: Source, interpreter: Sequence[str], out: BinaryIO) -> None:
    """Writes the process' memory to ``out``. ``interpreter`` are its mapped files: the program,
    which the image names as the process', and its library.

    Raises OSError where the process can't be read, TooLargeError.
    """
    regions = [region for region in starmap(_Region, process.regions()) if region.access[0] == "r"]
    kept = {region for region in regions if region.is_kept(interpreter)}
    size = sum(region.size for region in kept)
    if size > MOST_BYTES:
        raise TooLargeError(
            f"it has {size >> 20} MiB of its own memory, and {MOST_BYTES >> 20} MiB are copied"
        )
    if len(regions) >= _MOST_REGIONS:
        raise TooLargeError(f"its memory has {len(regions):,} parts, too many for a core file")
    # Readers take the first file whose code is mapped for the program.
    files = [region for region in regions if region.file.startswith("/")]
    files.sort(key=lambda region: region.file != interpreter[0])
    notes = _notes(process, files)
    headers = _HEADER + _PROGRAM_HEADER * (len(regions) + 1)
    at = _round_up(headers + len(notes))
    table = [_program_header(_NOTE, 0, headers, 0, len(notes), len(notes))]
    places: list[tuple[int, _Region]] = []
    for region in regions:
        size = region.size if region in kept else 0
        flags = sum(bit for letter, bit in _FLAGS.items() if letter in region.access)
        table.append(_program_header(_LOAD, flags, at, region.start, size, region.size))
        if size:
            places.append((at, region))
        at += size
    out.write(_elf_header(len(table)) + b"".join(table) + notes)
    for place, region in places:
        out.seek(place)
        _copy(process, region, out)
    out.truncate(at)
    out.flush()


def _copy(memory: Source, region: _Region, out: BinaryIO) -> None:
    """Pages that can't be read (unmapped meanwhile) stay zero."""
    at = region.start
    while at < region.end:
        wanted = min(_AT_ONCE, region.end - at)
        data = memory.read(at, wanted)
        rest = -len(data) % _PAGE if len(data) == wanted else _PAGE - len(data) % _PAGE
        out.write(data + bytes(rest))
        at += len(data) + rest


def _notes(process: Source, files: Sequence[_Region]) -> bytes:
    notes = b""
    for tid in process.threads:
        status = bytearray(_PRSTATUS_SIZE)
        struct.pack_into("<i", status, _PRSTATUS_PID, tid)
        notes += _note(_PRSTATUS, bytes(status))
    info = bytearray(_PRPSINFO_SIZE)
    struct.pack_into("<i", info, _PRPSINFO_PID, process.pid)
    notes += _note(_PRPSINFO, bytes(info))
    mapped = struct.pack("<QQ", len(files), 1)
    for region in files:
        mapped += struct.pack("<QQQ", region.start, region.end, region.offset)
    names = b"".join(os.fsencode(region.file) + b"\0" for region in files)
    return notes + _note(_FILE, mapped + names)


def _note(kind: int, data: bytes) -> bytes:
    padding = bytes(-len(data) % 4)
    return struct.pack("<III8s", 5, len(data), kind, b"CORE") + data + padding


def _elf_header(segments: int) -> bytes:
    return b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH",
        *(_CORE, _X86_64, 1, 0, _HEADER, 0, 0),
        *(_HEADER, _PROGRAM_HEADER, segments, 0, 0, 0),
    )


def _program_header(kind: int, flags: int, at: int, address: int, size: int, memory: int) -> bytes:
    align = _PAGE if kind == _LOAD else 4
    return struct.pack("<IIQQQQQQ", kind, flags, at, address, 0, size, memory, align)


def _round_up(size: int) -> int:
    return -(-size // _PAGE) * _PAGE
