# SPDX-License-Identifier: MIT
"""Writes Perfetto traces of the kernel's events, by the field numbers of perfetto's .proto
files.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

Value = int | bytes | str


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def message(*fields: tuple[int, Value]) -> bytes:
    """Fields by number, in this order."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += _varint(number << 3) + _varint(value)
        else:
            data = value.encode() if isinstance(value, str) else value
            out += _varint(number << 3 | 2) + _varint(len(data)) + data
    return out


def packed(values: Sequence[int]) -> bytes:
    """A list of numbers as one field's value."""
    return b"".join(map(_varint, values))


def deltas(times: Sequence[int]) -> bytes:
    """Times, each as the difference to the one before."""
    return packed([now - before for before, now in zip([0, *times], times, strict=False)])


# numbers of events in FtraceEvent
SWITCH, WAKING, SOFTIRQ_ENTRY, SOFTIRQ_EXIT, CPU_FREQUENCY = 4, 20, 24, 25, 11
NEWTASK, RENAME, SIGNAL, SYS_ENTER, SYS_EXIT = 235, 236, 325, 329, 330


def event(ts: int, tid: int, number: int, *fields: tuple[int, Value]) -> bytes:
    """What happened while thread ``tid`` ran."""
    return message((1, ts), (2, tid), (number, message(*fields)))


def switch(ts: int, before: tuple[int, str], state: int, after: tuple[int, str]) -> bytes:
    """Threads by id and name."""
    return event(
        ts,
        before[0],
        SWITCH,
        (1, before[1]),
        (2, before[0]),
        (4, state),
        (5, after[1]),
        (6, after[0]),
    )


def bundle(cpu: int, events: Sequence[bytes], compact: bytes = b"", *, lost: bool = False) -> bytes:
    """A packet of one CPU's events."""
    fields: list[tuple[int, Value]] = [(1, cpu), *((2, event) for event in events)]
    if lost:
        fields.append((3, 1))
    if compact:
        fields.append((4, compact))
    return message((1, message(*fields)))


def process_tree(
    processes: Sequence[tuple[int, int, str]], threads: Sequence[tuple[int, int, str]]
) -> bytes:
    """A packet. Processes: id, parent, command; threads: id, process, name."""
    fields = [
        (1, message((1, pid), (2, parent), (3, command))) for pid, parent, command in processes
    ]
    fields += [(2, message((1, tid), (2, name), (3, pid))) for tid, pid, name in threads]
    return message((2, message(*fields)))


def machine(name: str) -> bytes:
    """A packet that tells of the machine."""
    return message((45, message((1, message((1, "Linux"), (3, "6.1"), (4, name))))))


def trace(*packets: bytes) -> bytes:
    return message(*((1, packet) for packet in packets))


def compressed(*packets: bytes) -> bytes:
    """Packets within one."""
    return message((50, zlib.compress(trace(*packets))))
