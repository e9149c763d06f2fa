# SPDX-License-Identifier: MIT
"""Reads Perfetto traces by the field numbers of perfetto's .proto files, independently of the
writer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# protos/perfetto/trace/trace_packet.proto, track_event/*.proto
_PACKETS, _TIMESTAMP, _TRACK_EVENT, _INTERNED, _FLAGS, _TRACK_DESCRIPTOR = 1, 8, 11, 12, 13, 60
_UUID, _PARENT, _PROCESS, _THREAD = 1, 5, 3, 4
_TYPE, _TRACK, _CATEGORY, _NAME, _FLOWS, _ENDING_FLOWS, _ANNOTATIONS = 9, 11, 3, 10, 47, 48, 4
# interned_data.proto, and the numbers in debug_annotation.proto that mean its texts
_CATEGORIES, _NAMES, _FACTS, _TEXTS = 1, 2, 3, 29
_CLEARED, _NEEDS = 1, 2
_BEGIN, _END, _INSTANT = 1, 2, 3

Message = dict[int, list[int | bytes]]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        match key & 7:
            case 0:
                value, at = _varint(data, at)
                yield key >> 3, value
            case 1:
                yield key >> 3, struct.unpack_from("<Q", data, at)[0]
                at += 8
            case 2:
                size, at = _varint(data, at)
                assert at + size <= len(data), "a field that is cut"
                yield key >> 3, data[at : at + size]
                at += size
            case kind:
                raise AssertionError(f"wire type {kind}")


def _message(data: int | bytes) -> Message:
    assert isinstance(data, bytes)
    message: Message = {}
    for number, value in _fields(data):
        message.setdefault(number, []).append(value)
    return message


def _text(message: Message, number: int) -> str:
    value = message.get(number, [b""])[0]
    assert isinstance(value, bytes)
    return value.decode()


def _number(message: Message, number: int) -> int:
    value = message.get(number, [0])[0]
    assert isinstance(value, int)
    return value


@dataclass
class Slice:
    """A slice of a track, or an instant (then ``end`` is ``start``)."""

    tid: int
    name: str
    category: str
    start: int
    end: int
    flows: list[int]
    ending_flows: list[int]
    notes: dict[str, str | int]


@dataclass
class PerfettoTrace:
    """Threads' and processes' names, and what is on the tracks of threads. ``late``: how many
    packets are of an earlier time than the one before them on their track.
    """

    processes: dict[int, str] = field(default_factory=dict)
    threads: dict[int, tuple[int, str]] = field(default_factory=dict)
    slices: list[Slice] = field(default_factory=list)
    late: int = 0


@dataclass
class _Interned:
    """Texts that are written once, by their kinds and numbers."""

    texts: dict[tuple[int, int], str] = field(default_factory=dict)

    def take(self, packet: Message) -> None:
        flags = _number(packet, _FLAGS)
        assert flags & _NEEDS
        if flags & _CLEARED:
            self.texts.clear()
        for data in map(_message, packet.get(_INTERNED, [])):
            for kind, entries in data.items():
                for entry in map(_message, entries):
                    key = kind, _number(entry, 1)
                    assert key not in self.texts, "a text that is written twice"
                    self.texts[key] = _text(entry, 2)

    def notes(self, event: Message) -> dict[str, str | int]:
        notes: dict[str, str | int] = {}
        for annotation in map(_message, event.get(_ANNOTATIONS, [])):
            name = self.texts[_FACTS, _number(annotation, 1)]
            if 17 in annotation:
                notes[name] = self.texts[_TEXTS, _number(annotation, 17)]
            else:
                notes[name] = _text(annotation, 6) if 6 in annotation else _number(annotation, 3)
        return notes


def read_perfetto(path: Path) -> PerfettoTrace:
    """Reads a trace; slices must begin and end on a known track, without overlaps."""
    trace = PerfettoTrace()
    tracks: dict[int, int] = {}
    open_slices: dict[int, Slice] = {}
    newest: dict[int, int] = {}
    interned = _Interned()
    for packet in map(_message, _message(path.read_bytes())[_PACKETS]):
        interned.take(packet)
        if _TRACK_DESCRIPTOR in packet:
            track = _message(packet[_TRACK_DESCRIPTOR][0])
            if _THREAD in track:
                thread = _message(track[_THREAD][0])
                tid = _number(thread, 2)
                trace.threads[tid] = (_number(thread, 1), _text(thread, 5))
                tracks[_number(track, _UUID)] = tid
            elif _PROCESS in track:
                process = _message(track[_PROCESS][0])
                trace.processes[_number(process, 1)] = _text(process, 6)
        elif _TRACK_EVENT in packet:
            event, ts = _message(packet[_TRACK_EVENT][0]), _number(packet, _TIMESTAMP)
            tid, kind = tracks[_number(event, _TRACK)], _number(event, _TYPE)
            trace.late += ts < newest.get(tid, 0)
            newest[tid] = ts
            if kind == _END:
                open_slices.pop(tid).end = ts
                continue
            flows, ending = (
                [int(flow) for flow in event.get(number, [])] for number in (_FLOWS, _ENDING_FLOWS)
            )
            name = interned.texts[_NAMES, _number(event, _NAME)]
            category = interned.texts[_CATEGORIES, _number(event, _CATEGORY)]
            made = Slice(tid, name, category, ts, ts, flows, ending, interned.notes(event))
            trace.slices.append(made)
            if kind == _BEGIN:
                assert tid not in open_slices, f"slices of thread {tid} overlap"
                open_slices[tid] = made
            else:
                assert kind == _INSTANT
    assert not open_slices
    return trace
