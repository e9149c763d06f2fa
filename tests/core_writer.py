# SPDX-License-Identifier: MIT
"""Core files of processes that never lived."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

_HEADER, _SEGMENT = 64, 56
_LOAD, _NOTE = 1, 4
_STATUS, _PROGRAM, _FILES = 1, 3, 0x46494C45
READ, WRITE, EXECUTE = 4, 2, 1
CODE = 0x400000
# Of `struct user_regs_struct`.
_REGISTERS = (
    *("r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx"),
    *("rsi", "rdi", "orig_rax", "rip", "cs", "eflags", "rsp", "ss", "fs_base", "gs_base"),
    *("ds", "es", "fs", "gs"),
)


@dataclass(frozen=True)
class Stretch:
    """A stretch of memory; the core holds its first bytes, the rest is zero."""

    start: int
    size: int
    rights: int
    content: bytes = b""


@dataclass(frozen=True)
class Thread:
    """A thread that is at `rip`, in no system call unless `orig_rax` says so."""

    tid: int
    registers: dict[str, int] = field(default_factory=dict)

    def status(self) -> bytes:
        """`struct elf_prstatus`."""
        usual = {"rip": CODE, "cs": 0x33, "ss": 0x2B, "eflags": 0x202, "orig_rax": 2**64 - 1}
        values = {**usual, **self.registers}
        words = struct.pack("<27Q", *(values.get(name, 0) for name in _REGISTERS))
        head = struct.pack("<32xI76x", self.tid)
        return (head + words).ljust(336, b"\0")


def _note(kind: int, content: bytes) -> bytes:
    return struct.pack("<III", 5, len(content), kind) + b"CORE\0\0\0\0" + content


def core(
    threads: Sequence[Thread],
    memory: Sequence[Stretch],
    files: Sequence[tuple[int, int, str]] = (),
) -> bytes:
    """The bytes of the file. ``files``: where one is mapped, how many bytes of it, and its path."""
    program = struct.pack("<24xI12x", threads[0].tid) + b"hostile\0".ljust(96, b"\0")
    notes = _note(_PROGRAM, program) + b"".join(_note(_STATUS, t.status()) for t in threads)
    if files:
        mapped = b"".join(struct.pack("<QQQ", at, at + size, 0) for at, size, _ in files)
        names = b"".join(name.encode() + b"\0" for *_, name in files)
        note = struct.pack("<QQ", len(files), 4096) + mapped + names
        notes += _note(_FILES, note.ljust(-(-len(note) // 4) * 4, b"\0"))
    at = _HEADER + _SEGMENT * (1 + len(memory))
    segments = [struct.pack("<IIQQQQQQ", _NOTE, READ, at, 0, 0, len(notes), 0, 4)]
    body = notes
    for part in memory:
        place = (part.rights, at + len(body), part.start, 0, len(part.content), part.size, 4096)
        segments.append(struct.pack("<IIQQQQQQ", _LOAD, *place))
        body += part.content
    identity = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    fields = (4, 62, 1, 0, _HEADER, 0, 0, _HEADER, _SEGMENT, len(segments), 64, 0, 0)
    header = identity + struct.pack("<HHIQQQIHHHHHH", *fields)
    return header + b"".join(segments) + body
