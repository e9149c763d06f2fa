# SPDX-License-Identifier: MIT
"""What the head of an executable says: an ELF file's program headers, a script's interpreter."""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from typing import NamedTuple

MAGIC = b"\x7fELF"
CLASS_64, X86_64 = 2, 62
LOAD, DYNAMIC, INTERPRETER = 1, 2, 3  # kinds of segments
_HEADER, _SEGMENT = 64, struct.Struct("<IIQQQQQQ")
SCRIPT_DEPTH = 4  # the kernel's own limit on interpreters of interpreters


class Segment(NamedTuple):
    """A program header of a 64-bit file, in its order."""

    kind: int
    flags: int
    offset: int
    address: int
    physical: int
    stored: int
    held: int
    align: int


def segments(data: bytes | mmap.mmap) -> list[Segment]:
    """Those that a file's content has whole."""
    if len(data) < _HEADER:
        return []
    (offset,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    places = range(offset, offset + size * count, size or 1)
    whole = [place for place in places if place + _SEGMENT.size <= len(data)]
    return [Segment(*_SEGMENT.unpack_from(data, place)) for place in whole]


def interpreter(program: Path) -> list[str]:
    """The words behind ``#!`` of a script's first line; none where it is no script."""
    try:
        with program.open("rb") as file:
            line = file.readline(256)
    except OSError:
        return []
    return [os.fsdecode(word) for word in line[2:].split()] if line.startswith(b"#!") else []
