# SPDX-License-Identifier: MIT
"""JSON objects about Python code, in the field ``python`` of ``flagfinder.spin/1``. Imported for
its types only.
"""

from __future__ import annotations

from typing import Literal

from flagfinder.interpreters.python_loop import Way
from flagfinder.shared.typed import NotRequired, TypedDict

# What ends the wait of an event loop's task.
TaskEnd = Literal["timer", "input", "deadlock", "unknown"]
PythonLoopKind = Literal["waits", "mixed", "works", "counts", "endless"]


class PythonFrameFields(TypedDict):
    """A function on the stack; ``line`` as last seen."""

    function: str
    file: str
    line: int


class PythonExitFields(TypedDict):
    """What ends a loop: ``when``, an expression that is true then, empty where nothing is asked.
    ``where`` says from what the names in it come. ``foreign``: not the loop's own doing.
    """

    line: int
    way: Way
    when: str
    where: dict[str, str]
    foreign: bool


class PythonValueFields(TypedDict):
    """A local variable that an exit reads, and the address of the object."""

    name: str
    value: str
    address: str


class PythonLoopFields(TypedDict):
    """The loop that the thread was in at all looks. ``confidence`` that the exits are what it
    waits for; null where nothing founds it.
    """

    function: str
    file: str
    line: int
    end_line: int
    lines: list[int]
    kind: PythonLoopKind
    source: list[str]
    exits: list[PythonExitFields]
    values: list[PythonValueFields]
    confidence: float | None


class PythonFields(TypedDict):
    """One thread's Python code. ``frames`` innermost first; ``seen`` of ``looks`` saw the thread,
    ``gil`` of them with the interpreter's lock. ``note`` says why there is no loop.
    """

    looks: int
    seen: int
    gil: int
    frames: list[PythonFrameFields]
    loop: PythonLoopFields | None
    note: str | None


class ScriptFields(TypedDict):
    """The loop of a shell's script that asks and sleeps. ``asks``: the conditions that end it.
    ``file``: ``-c`` if the command line holds the script.
    """

    file: str
    line: int
    asks: list[str]
    pause: str


class AskedOfFields(TypedDict):
    """A thread whose code gives what is asked another value; ``reason`` says which code."""

    tid: int
    reason: str


class SourceSpotFields(TypedDict):
    """A place in a source, as the engine takes it; ``locals`` it leaves."""

    function: str | None
    file: str
    line: int | None
    locals: NotRequired[dict[str, str]]


class AskedFields(TypedDict):
    """What a thread asks in its loop, or ``blocks`` in: ``statement``, and ``name`` with its place.
    ``at``: the place, where it is none on the thread's stack. ``nobody`` says why no thread is in
    ``owed``. ``of_task``: it is a task of an event loop that blocks, and this ends its wait.
    ``is_locked``: all tasks of that loop wait for locks. ``tells_all``: the machine's code need not
    be looked at.
    """

    tid: int
    name: str
    statement: str | None
    at: SourceSpotFields | None
    owed: list[AskedOfFields]
    nobody: str
    blocks: bool
    of_task: NotRequired[TaskEnd]
    is_locked: NotRequired[bool]
    tells_all: bool


class InSourceFields(TypedDict):
    """What is known of processes by their sources. ``stacks``: open calls by thread, innermost
    first.
    """

    asked: list[AskedFields]
    stacks: dict[int, list[SourceSpotFields]]
