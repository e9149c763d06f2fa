# SPDX-License-Identifier: MIT
"""Writes perf.data files by the layout in the kernel's tools/perf/Documentation/perf.data-file-
format.txt.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

_HEADER_BYTES, _ATTR_BYTES = 104, 112
_TRACEPOINT = 2
_TRACING_DATA, _EVENT_DESC = 1, 12  # numbers of features
_LOST, _COMM, _FORK, _SAMPLE, _MMAP2 = 2, 3, 7, 9, 10
_EXEC, _BUILD_ID = 1 << 13, 1 << 14  # in the header of a record
# PERF_SAMPLE_TID, TIME, CPU, RAW, IDENTIFIER
_SAMPLE_TYPE = 1 << 1 | 1 << 2 | 1 << 7 | 1 << 10 | 1 << 16
_SAMPLE_ID_ALL = 1 << 18
_COMMON = (
    "unsigned short common_type:2 unsigned char common_flags:1 unsigned char "
    "common_preempt_count:1 int common_pid:4"
)
# What stands behind the common fields, with bytes.
_FIELDS = {
    "sched_switch": "char prev_comm[16]:16 pid_t prev_pid:4 int prev_prio:4 long prev_state:8 char "
    "next_comm[16]:16 pid_t next_pid:4 int next_prio:4",
    "sched_waking": "char comm[16]:16 pid_t pid:4 int prio:4 int target_cpu:4",
    "sys_enter": "long id:8 unsigned long args[6]:48",
    "sys_exit": "long id:8 long ret:8",
    "sched_stat_runtime": "char comm[16]:16 pid_t pid:4",
}


def _format(name: str, number: int) -> tuple[str, dict[str, tuple[int, int]]]:
    lines, places, at = [f"name: {name}", f"ID: {number}", "format:"], {}, 0
    declaration: list[str] = []
    for word in f"{_COMMON} {_FIELDS[name]}".split():
        last, _, size = word.partition(":")
        declaration.append(last)
        if size:
            places[last.partition("[")[0]] = (at, int(size))
            lines.append(f"\tfield:{' '.join(declaration)};\toffset:{at};\tsize:{size};\tsigned:0;")
            at, declaration = at + int(size), []
    return "\n".join([*lines, "", 'print fmt: "x"', ""]), places


@dataclass
class PerfData:
    """A recording in the making; records are added in order of time, and ``write`` writes them."""

    records: list[bytes] = field(default_factory=list)

    def _record(self, kind: int, body: bytes, misc: int = 0) -> None:
        self.records.append(struct.pack("<IHH", kind, misc, 8 + len(body)) + body)

    def _number(self, name: str) -> int:
        return 300 + list(_FIELDS).index(name)

    def _trailer(self, ts: int, cpu: int, tid: int) -> bytes:
        return struct.pack("<IIQIIQ", tid, tid, ts, cpu, 0, 1)

    def sample(self, name: str, ts: int, cpu: int, tid: int, **values: int) -> None:
        """A tracepoint met by thread ``tid``."""
        _, places = _format(name, self._number(name))
        raw = bytearray(max(at + size for at, size in places.values()))
        for key, value in values.items():
            at, size = places[key]
            raw[at : at + min(size, 8)] = value.to_bytes(min(size, 8), "little", signed=value < 0)
        size = -(-(len(raw) + 4) // 8) * 8 - 4
        identity = 1 + list(_FIELDS).index(name)
        head = struct.pack("<QIIQIII", identity, tid, tid, ts, cpu, 0, size)
        self._record(_SAMPLE, head + bytes(raw).ljust(size, b"\0"))

    def comm(self, ts: int, cpu: int, tid: int, name: str, *, is_exec: bool = False) -> None:
        """A thread, the first of its process, has a name. At time 0: it had it before."""
        text = name.encode() + b"\0"
        text = text.ljust(-(-len(text) // 8) * 8, b"\0")
        self._record(
            _COMM,
            struct.pack("<II", tid, tid) + text + self._trailer(ts, cpu, tid),
            is_exec * _EXEC,
        )

    def fork(self, ts: int, cpu: int, parent: int, child: int) -> None:
        """A process starts another."""
        self._record(
            _FORK,
            struct.pack("<IIIIQ", child, parent, child, parent, ts)
            + self._trailer(ts, cpu, parent),
        )

    def mapped(self, ts: int, cpu: int, tid: int, build_id_bytes: int) -> None:
        """A mapping whose build-id is said to have so many bytes; it has room for 20."""
        head = struct.pack(
            "<IIQQQBBH20sII", tid, tid, 0x1000, 0x1000, 0, build_id_bytes, 0, 0, b"", 5, 2
        )
        self._record(_MMAP2, head + b"/bin/a\0\0" + self._trailer(ts, cpu, tid), _BUILD_ID)

    def lost(self, ts: int, cpu: int, count: int) -> None:
        """So many records found no room."""
        self._record(_LOST, struct.pack("<QQ", 1, count) + self._trailer(ts, cpu, 0))

    def write(self, path: Path, without: str = "") -> None:
        """Writes the file, without the tracepoint of this name."""
        names = [name for name in _FIELDS if name != without]
        data = b"".join(self.records)
        texts = "".join(_format(name, self._number(name))[0] for name in names).encode()
        tracing = b"\x17\x08\x44tracing0.6\0" + texts
        attrs = b""
        described = struct.pack("<II", len(names), _ATTR_BYTES)
        for name in names:
            number, identity = self._number(name), 1 + list(_FIELDS).index(name)
            attr = struct.pack(
                "<IIQQQQQ", _TRACEPOINT, _ATTR_BYTES, number, 1, _SAMPLE_TYPE, 0, _SAMPLE_ID_ALL
            )
            attr = attr.ljust(_ATTR_BYTES, b"\0")
            attrs += attr + struct.pack("<QQ", 0, 0)
            described += attr + struct.pack("<II64sQ", 1, 64, name.encode(), identity)
        data_at = _HEADER_BYTES + len(attrs)
        sections = [_ATTR_BYTES + 16, _HEADER_BYTES, len(attrs), data_at, len(data), 0, 0]
        features = 1 << _TRACING_DATA | 1 << _EVENT_DESC
        header = b"PERFILE2" + struct.pack("<8Q4Q", _HEADER_BYTES, *sections, features, 0, 0, 0)
        tracing_at = data_at + len(data) + 2 * 16
        places = struct.pack(
            "<QQQQ", tracing_at, len(tracing), tracing_at + len(tracing), len(described)
        )
        path.write_bytes(header + attrs + data + places + tracing + described)
