# SPDX-License-Identifier: MIT
"""The tasks of an event loop of asyncio, and where each is suspended.

In: a process, and the address of a loop. Out: its tasks that wait, each with its frames. Only
memory is read; nothing is stopped or run. A task's fields and a coroutine's frame are told by
the types of the objects that they hold, so that most of CPython's layouts need no table; the frames
of 3.10 to 3.13 are known, older and newer ones are not. What is read while it changes is checked:
an object counts if its type has the name that it should have. The lines are those of the code's
location table (`Objects/locations.md` of CPython). Blind spots: tasks that another
implementation than CPython's makes.
"""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Collection, Container, Iterator, Sequence
from pathlib import Path

from flagfinder import _core
from flagfinder.interpreters.python import PythonFrame
from flagfinder.shared.record import dataclass

_WORD = 8
# A type's fields, and those of bytes and texts, in bytes.
_TYPE, _TYPE_NAME, _TYPE_SIZE = 8, 24, 32
_LOOP = 16  # of a task
_LENGTH, _BYTES = 16, 32
_TEXTS = (40, 48)  # where a text's characters begin since 3.12, and before
_FIRST_LINE = {"3.10": 40, "3.11": 72, "3.12": 68}
# Words of a coroutine: its name, its frame, and the frame's parts.
_CODE_OF_3_11, _FRAME = 2, {"3.11": 10, "3.12": 9}
_FRAME_CODE = {"3.11": 4, "3.12": 0}
_NEXT, _DEPTH, _VALUES = 7, 8, 9
# Until 3.10 a frame is an object of its own.
_FRAME_OF_3_10 = 2
_CODE_OF_3_10, _STACK_OF_3_10, _DEPTH_OF_3_10, _AT_OF_3_10 = 4, 8, 10, 12
_NO_LINE = 128
_HALF = 0xFFFFFFFF
_MOST_VALUES = 500
_MOST_FRAMES = 50
_MOST_TABLE = 1 << 18  # bytes
_MOST_BITS = 32  # of a number in a table
_PATIENCE = 2.0  # s
_PART = 1 << 24  # bytes that are read at once
_COUNTS = 1 << 32  # more references no object has; those that never end have the most
_COROUTINES = ("coroutine", "generator", "async_generator")
_FUTURES = ("Future", "Task", "_GatheringFuture")
# What leads from a task to what its callbacks keep, in how many steps, and how large each may be.
_LEADS = ("function", "tuple", "cell", "list")
_OF_LOOP = ("Task", "Handle")
_STEPS = 5
_MOST_BACK = 24  # words
_REGION = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) rw\S+ \S+ 00:00 0(?:\s|$)")


@dataclass(frozen=True)
class Task:
    """A suspended task of the event loop at ``loop``. ``frames`` innermost first; none where the
    layout is not known. ``waiter`` is the address of the future that it waits for, and
    ``waits_for`` that future's type.
    """

    address: int
    loop: int
    name: str
    frames: tuple[PythonFrame, ...]
    waiter: int
    waits_for: str


def loop_of(pid: int, task: int) -> int:
    """The event loop of the task at this address; 0 where there is no task."""
    memory = _Memory(_core.ProcessMemory(pid))
    return memory.word(task + _LOOP) if memory.type_name(task) == "Task" else 0


def tasks_of(pid: int, loop: int) -> list[Task]:
    """The tasks of the loop at this address that wait; none where reading all of them takes too
    long. Raises OSError where the memory can't be read.
    """
    end = time.monotonic() + _PATIENCE
    found = []
    raw = _core.ProcessMemory(pid)
    memory = _Memory(raw)
    for place in _places(pid, raw, [loop], end + _PATIENCE):
        if time.monotonic() > end:
            return []
        task = memory.task(place - _LOOP) if place is not None else None
        if task is not None:
            found.append(task)
    return found


def keeper(pid: int, wanted: int, loops: Container[int]) -> tuple[int, int] | None:
    """The task, or the call that a loop has not made yet, whose callback keeps the object
    ``wanted``, as that of ``run_coroutine_threadsafe`` does what the other thread waits for; and
    which of these loops has it. Raises OSError where the memory can't be read.
    """
    end = time.monotonic() + 2 * _PATIENCE
    raw = _core.ProcessMemory(pid)
    memory = _Memory(raw)
    near, seen = {wanted}, {wanted}
    for _ in range(_STEPS):
        found = {memory.around(at) for at in _places(pid, raw, near, end) if at is not None}
        for address in found:
            words = memory.words(address, _MOST_BACK) if memory.is_of_loop(address) else ()
            if (loop := next((word for word in words if word in loops), None)) is not None:
                return address, loop
        near = found - seen - {0}
        seen |= near
    return None


def _places(
    pid: int, memory: _core.ProcessMemory, words: Collection[int], end: float
) -> Iterator[int | None]:
    """Where one of the words stands, and None after each part of the memory."""
    # Zeroes are everywhere.
    wanted = [word.to_bytes(_WORD, "little") for word in words]
    rare = [(one, one.rstrip(b"\0")) for one in wanted]
    for start, stop in _parts(pid, memory):
        if time.monotonic() > end:
            return
        part = memory.read(start, stop - start)
        for whole, short in rare:
            at = part.find(short)
            while at >= 0:
                if at % _WORD == 0 and part.startswith(whole, at):
                    yield start + at
                at = part.find(short, at + 1)
        yield None


def _parts(pid: int, memory: _core.ProcessMemory) -> Iterator[tuple[int, int]]:
    """Stretches of memory of no file that the process may write, where pages are there."""
    with Path(f"/proc/{pid}/maps").open("rb") as maps:
        found = [region.groups() for region in map(_REGION.match, maps) if region]
    for first, behind in found:
        start, end = int(first, 16), int(behind, 16)
        for at in range(start, end, _PART):
            yield from memory.there(at, min(at + _PART, end))


class _Memory:
    """Objects of CPython in another process. A word that can't be read is 0."""

    def __init__(self, memory: _core.ProcessMemory) -> None:
        self._memory = memory
        self._names: dict[int, str] = {}

    def _bytes(self, address: int, size: int) -> bytes:
        try:
            return self._memory.read(address, size)
        except OverflowError:
            return b""

    def words(self, address: int, count: int) -> Sequence[int]:
        got = self._bytes(address, count * _WORD)
        return struct.unpack(f"<{len(got) // _WORD}Q", got[: len(got) // _WORD * _WORD])

    def word(self, address: int) -> int:
        return next(iter(self.words(address, 1)), 0)

    def type_name(self, address: int) -> str:
        """The last part of the name of an object's type; empty for what is no object."""
        if address == 0 or address % _WORD:
            return ""
        count, kind = (*self.words(address, 2), 0, 0)[:2]
        if not 0 < count < _COUNTS or kind == 0:
            return ""
        if kind not in self._names:
            text = self._bytes(self.word(kind + _TYPE_NAME), 80).partition(b"\0")[0]
            self._names[kind] = text.decode("ascii", "replace").rpartition(".")[2]
        return self._names[kind]

    def text(self, address: int) -> str | None:
        """A `str` of ASCII characters."""
        if self.type_name(address) != "str":
            return None
        length = self.word(address + _LENGTH)
        if length > 4096:
            return None
        for offset in _TEXTS:
            got = self._bytes(address + offset, length + 1)
            if len(got) == length + 1 and got[-1] == 0 and got[:-1].isascii():
                text = got[:-1].decode("ascii")
                if text.isprintable() and (text or not length):
                    return text
        return None

    def task(self, address: int) -> Task | None:
        """The task at this address, if there is one that waits."""
        if self.type_name(address) != "Task":
            return None
        size = self.word(self.word(address + _TYPE) + _TYPE_SIZE)
        words = self.words(address, min(size, 1024) // _WORD)
        # What it waits for stands in front of the coroutine, and its name behind it.
        for before, coroutine, name in zip(words[2:], words[3:], words[4:], strict=False):
            if self.type_name(coroutine) in _COROUTINES and self.type_name(before) in _FUTURES:
                frames = tuple(self._frames(coroutine))
                kind = self.type_name(before)
                return Task(address, words[2], self.text(name) or "", frames[::-1], before, kind)
        return None

    def is_of_loop(self, address: int) -> bool:
        """Is it a task, or a call that a loop is to make?"""
        return self.type_name(address) in _OF_LOOP

    def around(self, place: int) -> int:
        """The object that leads from a loop to what stands at this place; 0 if there is none."""
        for address in range(place - 2 * _WORD, place - _MOST_BACK * _WORD, -_WORD):
            name = self.type_name(address)
            if name in _LEADS or name in _OF_LOOP:
                return address
        return 0

    def _frames(self, coroutine: int) -> Iterator[PythonFrame]:
        """The frames of a coroutine and of those that it awaits, outermost first."""
        for _ in range(_MOST_FRAMES):
            own = self.words(coroutine, max(_FRAME.values()) + _VALUES)
            if len(own) < max(_FRAME.values()) + _VALUES:
                return
            is_old = self.type_name(own[_FRAME_OF_3_10]) == "frame"
            found = self._outside(own[_FRAME_OF_3_10]) if is_old else self._within(coroutine, own)
            if found is None:
                return
            frame, top = found
            yield frame
            if self.type_name(top) == "coroutine_wrapper":
                top = self.word(top + 2 * _WORD)
            if self.type_name(top) not in _COROUTINES:
                return
            coroutine = top

    def _within(self, coroutine: int, words: Sequence[int]) -> tuple[PythonFrame, int] | None:
        """The frame that a coroutine has within itself, and what lies on its stack."""
        version = "3.11" if self.type_name(words[_CODE_OF_3_11]) == "code" else "3.12"
        first = _FRAME[version]
        code = words[first + _FRAME_CODE[version]]
        depth = words[first + _DEPTH] & _HALF
        if self.type_name(code) != "code" or not 0 < depth < _MOST_VALUES:
            return None
        at = (words[first + _NEXT] - code - self._size(code)) // 2
        frame = self._frame(code, at, version)
        top = self.word(coroutine + (first + _VALUES + depth - 1) * _WORD)
        return None if frame is None else (frame, top)

    def _outside(self, frame: int) -> tuple[PythonFrame, int] | None:
        """The same of one that is an object of its own, as in Python 3.10."""
        words = self.words(frame, _AT_OF_3_10 + 1)
        if len(words) <= _AT_OF_3_10:
            return None
        code, depth = words[_CODE_OF_3_10], words[_DEPTH_OF_3_10] & _HALF
        if self.type_name(code) != "code" or not 0 < depth < _MOST_VALUES:
            return None
        found = self._frame(code, words[_AT_OF_3_10] & _HALF, "3.10")
        top = self.word(words[_STACK_OF_3_10] + (depth - 1) * _WORD)
        return None if found is None else (found, top)

    def _size(self, code: int) -> int:
        return self.word(self.word(code + _TYPE) + _TYPE_SIZE)

    def _frame(self, code: int, at: int, version: str) -> PythonFrame | None:
        """A place in code: its file and names stand side by side, and behind them its lines."""
        count = 2 if version == "3.10" else 3
        texts: list[str] = []
        table = 0
        for field in self.words(code, min(self._size(code), 1024) // _WORD)[3:]:
            kind = self.type_name(field)
            if kind == "str":
                texts.append(self.text(field) or "?")
            elif kind == "bytes" and len(texts) == count:
                table = field
                break
        if table == 0:
            return None
        (first,) = struct.unpack("<i", self._bytes(code + _FIRST_LINE[version], 4) or bytes(4))
        lines = self._bytes(table + _BYTES, min(self.word(table + _LENGTH), _MOST_TABLE))
        line = (line_of_3_10 if version == "3.10" else line_at)(lines, first, at)
        return PythonFrame(texts[-1], texts[0], line or first)


def line_of_3_10(table: bytes, first: int, unit: int) -> int | None:
    """The line of a code unit, by a table of Python 3.10 (``Objects/lnotab_notes.txt``)."""
    line, end = first, 0
    for span, delta in zip(table[::2], table[1::2], strict=False):
        has_line = delta != _NO_LINE
        if has_line:
            line += delta - 256 if delta > _NO_LINE else delta
        end += span
        if end > unit * 2:
            return line if has_line else None
    return None


def line_at(table: bytes, first: int, unit: int) -> int | None:
    """The line of a code unit, by a location table of Python 3.11 and later that begins at line
    ``first``; None where the table has none.
    """
    line, at, end = first, 0, 0
    while at < len(table):
        kind, end = table[at] >> 3 & 15, end + (table[at] & 7) + 1
        at += 1
        if kind in (13, 14):
            delta, shift = 0, 0
            while at < len(table) and shift < _MOST_BITS:
                byte = table[at]
                at += 1
                delta |= (byte & 63) << shift
                shift += 6
                if not byte & 64:
                    break
            line += -(delta >> 1) if delta & 1 else delta >> 1
        elif 10 <= kind <= 12:
            line += kind - 10
        if end > unit:
            return None if kind == 15 else line
        while at < len(table) and not table[at] & 128:  # columns, and the line of the end
            at += 1
    return None
