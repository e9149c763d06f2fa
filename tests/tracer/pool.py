# SPDX-License-Identifier: MIT
"""Runs a program under the tracer with a pool big enough that nobody has to drain it, and reads the
pool.

A second reader of ``include/ff_protocol.h``, on purpose without the engine: these tests are the
tracer's.
"""

from __future__ import annotations

import os
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

CHUNK = 1 << 20
DESCRIPTORS = 4096
META, FLOW, VALUES = range(3)
PROCESS, MODULE_LOAD, MODULE_UNLOAD, BLOCK, NOTE = range(1, 6)
(
    THREAD_START, THREAD_EXIT, SYSCALL_ENTER, SYSCALL_EXIT, SIGNAL, TRANSFER, ALLOC, FREE, FORK,
    EXEC, GAP, VALUES_OFF, VALUES_ON, THREAD_NAME, FAULT,
) = range(1, 16)  # fmt: skip
SLOT_LOAD, SLOT_REGISTER = 1, 2
_HEADER = struct.Struct("<QIIIIQQIIIIIIQQI")


@dataclass(frozen=True)
class Slot:
    instruction: int
    kind: int
    size: int
    detail: int


@dataclass(frozen=True)
class Block:
    id: int
    module: int
    pc: int
    code: bytes
    instructions: int
    slots: tuple[Slot, ...]


@dataclass
class Process:
    """What one image of a process wrote."""

    paths: list[str] = field(default_factory=list)
    modules: dict[int, tuple[int, str]] = field(default_factory=dict)  # number -> base, path
    blocks: dict[int, Block] = field(default_factory=dict)
    flow: dict[int, bytes] = field(default_factory=dict)  # by thread
    values: dict[int, list[tuple[int, int, tuple[int, ...], bytes]]] = field(default_factory=dict)

    def events(self, tid: int) -> list[tuple[int, bytes]]:
        return [
            (kind, payload) for kind, payload in units(self.flow[tid]) if isinstance(payload, bytes)
        ]

    def all_events(self, kind: int) -> list[bytes]:
        return [
            payload for tid in self.flow for found, payload in self.events(tid) if found == kind
        ]

    def path_blocks(self, tid: int) -> list[Block]:
        """The blocks that a thread ran, in order."""
        return [
            self.blocks[number] for _, number in units(self.flow[tid]) if isinstance(number, int)
        ]


def units(flow: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(position, block id) or (event kind, payload)."""
    at = 0
    while at + 2 <= len(flow):
        unit = int.from_bytes(flow[at : at + 2], "little")
        if unit == 0:
            return
        if unit == 0xFFFF:
            _, kind, size = struct.unpack_from("<HHI", flow, at)
            yield kind, flow[at + 8 : at + 8 + size]
            at += 8 + size + size % 2
        elif unit >= 0xF000:
            yield at, (unit - 0xF000) << 16 | int.from_bytes(flow[at + 2 : at + 4], "little")
            at += 4
        else:
            yield at, unit
            at += 2


class Pool:
    """A pool file. ``image(pid)`` reads what a process wrote, FULL and half-filled chunks alike."""

    def __init__(self, level: str, chunks: int = 400) -> None:
        handle, name = tempfile.mkstemp(prefix="flagfinder-test-", dir="/dev/shm")
        self.path, self.chunks = Path(name), chunks
        self.data = -(-(DESCRIPTORS + 256 * chunks) // 4096) * 4096
        os.truncate(handle, self.data + chunks * CHUNK)
        header = _HEADER.pack(
            0x314D4853454C4646, 2, chunks, CHUNK, int(level == "values"), DESCRIPTORS, self.data,
            0, 0, os.getpid(), 0, chunks, 0, 0, 0, 0,
        )  # fmt: skip
        os.pwrite(handle, header, 0)
        os.close(handle)

    def close(self) -> None:
        self.path.unlink()

    def processes(self) -> dict[tuple[int, int], Process]:
        """By (pid, image_ts)."""
        with self.path.open("rb") as file:
            table = os.pread(file.fileno(), 256 * self.chunks, DESCRIPTORS)
            streams: dict[
                tuple[int, int, int, int], list[tuple[int, int, int, tuple[int, ...], bytes]]
            ] = {}
            for index in range(self.chunks):
                state, stream, pid, tid, seq, start, _, _, used, valid = struct.unpack_from(
                    "<IIIIQQQQII", table, 256 * index
                )
                regs = struct.unpack_from("<18Q", table, 256 * index + 56)
                (image,) = struct.unpack_from("<Q", table, 256 * index + 200)
                if state == 0:
                    continue
                data = os.pread(
                    file.fileno(), used if state == 2 else CHUNK, self.data + index * CHUNK
                )
                streams.setdefault((pid, image, stream, tid), []).append(
                    (seq, start, valid, regs, data)
                )
        found: dict[tuple[int, int], Process] = {}
        for (pid, image, stream, tid), chunks in streams.items():
            process = found.setdefault((pid, image), Process())
            chunks.sort()
            assert [chunk[0] for chunk in chunks] == list(range(len(chunks))), "a chunk is missing"
            whole = b"".join(chunk[4] for chunk in chunks)
            if stream == META:
                _read_meta(process, whole)
            elif stream == FLOW:
                process.flow[tid] = whole
            else:
                process.values[tid] = [chunk[1:] for chunk in chunks]
        return found


def _read_meta(process: Process, data: bytes) -> None:
    at = 0
    while at + 8 <= len(data):
        magic, kind, size = struct.unpack_from("<HHI", data, at)
        if magic != 0xFFFF:
            assert magic == 0, "META is broken"
            return
        body = data[at + 8 : at + 8 + size]
        if kind == PROCESS:
            process.paths.append(body[24:].decode())
        elif kind == MODULE_LOAD:
            _, number, segments, base, _, _, build_id, path = struct.unpack_from("<QIIQQQII", body)
            process.modules[number] = (base, body[48 + 32 * segments + build_id :][:path].decode())
        elif kind == BLOCK:
            number, module, pc, code, instructions, slots = struct.unpack_from("<IIQIHH", body)
            where = 24 + code
            parts = (body[where + 4 * i : where + 4 * i + 4] for i in range(slots))
            process.blocks[number] = Block(
                number,
                module,
                pc,
                body[24:where],
                instructions,
                tuple(Slot(*part) for part in parts),
            )
        at += 8 + size + size % 2


@dataclass
class Run:
    status: int
    stdout: bytes
    stderr: bytes
    processes: dict[tuple[int, int], Process]

    @property
    def process(self) -> Process:
        """The only process, or the first."""
        return self.processes[min(self.processes, key=lambda key: key[1])]


def launch(
    tracer: Path, pool: Pool, level: str, command: Sequence[str], *options: str
) -> list[str]:
    return [
        *(str(tracer / "ff_launch"), "--pool", str(pool.path), "--level", level),
        *(*options, "--", *command),
    ]


def trace(
    tracer: Path,
    level: str,
    command: Sequence[str | Path],
    *options: str,
    timeout: float = 60,
    **popen: object,
) -> Run:
    with closing(Pool(level)) as pool:
        done = subprocess.run(
            launch(tracer, pool, level, [str(word) for word in command], *options),
            capture_output=True,
            timeout=timeout,
            **popen,  # type: ignore[call-overload]
        )
        return Run(done.returncode, done.stdout, done.stderr, pool.processes())
