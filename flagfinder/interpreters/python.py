# SPDX-License-Identifier: MIT
"""What Python code the threads of a live process run, and which loop of it a repeating thread is
in.

Several looks within a fraction of a second (``py_spy``) tell what all of them have in common; the
source tells what ends that loop (``python_loop``). The process is read, never stopped.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TYPE_CHECKING, Literal, cast

from flagfinder import _core
from flagfinder.interpreters.py_spy import SeenFrame, SeenStack, look, look_at_core
from flagfinder.interpreters.python_loop import Exit, Loop, Way
from flagfinder.interpreters.python_sources import Sources, is_library
from flagfinder.interpreters.which import UnreadableError
from flagfinder.shared.build import build
from flagfinder.shared.record import asdict, dataclass, field, replace
from flagfinder.shared.typed import Self

if TYPE_CHECKING:
    from flagfinder.interpreters.fields import PythonFields, PythonLoopFields, PythonLoopKind

_LOOKS = 12
_INTERVAL = 0.012  # seconds between looks
_TIME = 0.4  # seconds for all looks
_LONGEST = 2.0  # seconds for enough of them, where the machine is busy
_FIRST_TIME = 2.0  # seconds after which a machine is too busy to get even one
_ENOUGH = 6  # looks from which "in all of them" says something
_FRAMES = 64
_VALUE_WIDTH = 80
# Confidence if all looks were in the loop, and it does nothing but ask and pause: only a name may
# mislead (a property, a `sleep` of the program's own). It is lower than what the engine gives to a
# word that it saw decide.
_CONFIDENCE = 0.8
# What it asks may do work (`try: connect()`), but it was pausing at most looks; or there is but one
# look, at a core.
_LIKELY = 0.5


Told = Literal["known", "ends"]


@dataclass(frozen=True)
class PythonFrame:
    """A function on the stack; ``line`` as last seen. ``variables``: each one's value as text."""

    function: str
    file: str
    line: int
    variables: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class PythonExit:
    """What ends a loop: ``when``, an expression that is true then (empty: unconditional). ``way``:
    how it is left.

    ``where`` says from what the names in it come, where the loop binds them. ``foreign``: not the
    loop's own doing.
    """

    line: int
    way: Way
    when: str
    where: Mapping[str, str]
    foreign: bool


@dataclass(frozen=True)
class PythonValue:
    """A local variable that an exit reads, as it was at the last look, and the address of the
    object.
    """

    name: str
    value: str
    address: str


@dataclass(frozen=True)
class PythonLoop:
    """The loop that the thread was in at all looks; for a blocked thread, one whose pause it is in.

    ``kind``: ``waits`` (it only asks and pauses), ``mixed`` (does other things too, but mostly
    pauses), ``works``, ``counts`` (comes to an end by itself), ``endless`` (nothing leaves it).
    ``lines``: those seen. ``confidence`` that the exits are what the thread waits for; None where
    nothing founds it.
    """

    function: str
    file: str
    line: int
    end_line: int
    lines: tuple[int, ...]
    kind: PythonLoopKind
    source: tuple[str, ...]
    exits: tuple[PythonExit, ...]
    values: tuple[PythonValue, ...]
    confidence: float | None
    pauses: bool = False  # at all looks it was in a call that only pauses

    @property
    def when(self) -> str | None:
        """What ends the wait, in one expression; None for a loop that does not wait."""
        return " or ".join(self.questions) or None

    @property
    def questions(self) -> tuple[str, ...]:
        """What ends the wait, an expression for each way out."""
        if self.kind not in ("waits", "mixed"):
            return ()
        asked = (way.when for way in self.exits if way.foreign and way.way != "raise")
        return tuple(dict.fromkeys(asked))

    @property
    def is_answer(self) -> bool:
        """Whether it is founded that ``when`` is what the thread waits for."""
        return self.is_likely and self.confidence == _CONFIDENCE

    @property
    def is_likely(self) -> bool:
        """Whether ``when`` is an answer where the engine finds none; what it asks may do work."""
        return self.when is not None and self.confidence is not None


@dataclass(frozen=True)
class PythonCode:
    """One thread's Python code. ``frames`` innermost first, as at the last look; ``seen`` of
    ``looks`` saw the thread.

    ``gil``: looks in which it held the interpreter's lock. ``note`` says why there is no ``loop``,
    where that is known. ``around``: where that is none of the program, the innermost that is.
    """

    looks: int
    seen: int
    gil: int
    frames: tuple[PythonFrame, ...]
    loop: PythonLoop | None
    note: str | None
    around: PythonLoop | None = None

    @classmethod
    def from_raw(cls, raw: PythonFields) -> PythonCode:
        """From the field ``python`` of ``flagfinder.spin/1``."""
        frames = tuple(PythonFrame(**item) for item in raw["frames"])
        loop = None if raw["loop"] is None else _loop_from_raw(raw["loop"])
        return build(cls, raw, frames=frames, loop=loop)

    def to_raw(self) -> PythonFields:
        """As ``--json`` prints it: without the variables, which may be secret."""
        raw = asdict(self)
        for frame in raw["frames"]:
            del frame["variables"]
        del raw["around"]
        if raw["loop"] is not None:
            del raw["loop"]["pauses"]
        return cast("PythonFields", raw)


def _loop_from_raw(raw: PythonLoopFields) -> PythonLoop:
    exits = tuple(PythonExit(**item) for item in raw["exits"])
    values = tuple(PythonValue(**item) for item in raw["values"])
    return build(PythonLoop, raw, exits=exits, values=values, pauses=False)


def gil_holder(codes: Mapping[int, PythonCode]) -> int | None:
    """The thread that held the interpreter's lock at all looks, where there are enough of them and
    other threads.
    """
    held = [tid for tid, code in codes.items() if code.gil == code.looks and code.looks >= _ENOUGH]
    return held[0] if len(held) == 1 and len(codes) > 1 else None


def read_python(
    pid: int, repeating: Collection[int], *, most: int = _LOOKS, longest: float = _LONGEST
) -> dict[int, PythonCode]:
    """The Python code of the threads of ``pid``, by thread id. ``repeating``: those that are not
    just blocked. At ``most`` so many looks are made, within ``longest`` seconds.

    Takes half a second, one or two where the machine is busy. Raises UnreadableError when no look
    succeeds.
    """
    looks = _looks(pid, most if repeating else 1, Event(), longest)
    return _codes(looks, Sources.of_process(pid), repeating)


def read_python_of_core(
    core: _core.CoreMemory, written: float, repeating: Collection[int]
) -> dict[int, PythonCode]:
    """The same of a dead process, whose core file was ``written`` in seconds since 1970. Raises
    UnreadableError.
    """
    looks = [look_at_core(core, timeout=_LONGEST)]
    return _codes(looks, Sources.of_core(core, written), repeating, enough=len(looks))


class PythonReader:
    """Reads the code of ``pid`` while the engine finds out which threads repeat something."""

    def __init__(self, pid: int) -> None:
        self._sources = Sources.of_process(pid)
        self._enough = Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="python-reader")
        self._looks = self._pool.submit(_looks, pid, _LOOKS, self._enough)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self._pool.shutdown()

    def told(self, tid: int) -> Told | None:
        """What the code of a repeating thread tells of its loop: that it comes to an end by itself,
        or what it waits for, which may be nothing.
        """
        try:
            looks = self._looks.result()
        except UnreadableError:
            return None
        if not any(tid in seen for seen in looks):
            return None
        loop = _code(tid, looks, self._sources, repeats=True).loop
        if loop is None:
            return None
        if loop.kind == "counts" and not loop.is_answer:
            return "ends"
        # A single place may be a call that itself waits for more than time.
        places = {seen[tid].frames[-1].line for seen in looks if tid in seen and seen[tid].frames}
        is_endless = loop.kind == "endless" and (len(places) > 1 or loop.pauses)
        return "known" if loop.is_answer or is_endless else None

    def codes(self, repeating: Collection[int]) -> dict[int, PythonCode]:
        """As ``read_python``."""
        if not repeating:
            self._enough.set()
        return _codes(self._looks.result(), self._sources, repeating)


def _codes(
    looks: Sequence[Mapping[int, SeenStack]],
    sources: Sources,
    repeating: Collection[int],
    *,
    enough: int = _ENOUGH,
) -> dict[int, PythonCode]:
    tids = {tid for seen in looks for tid in seen}
    return {
        tid: _code(tid, looks, sources, repeats=tid in repeating, enough=enough)
        for tid in sorted(tids, key=lambda tid: (tid not in repeating, tid))
    }


def _code(
    tid: int,
    looks: Sequence[Mapping[int, SeenStack]],
    sources: Sources,
    *,
    repeats: bool,
    enough: int = _ENOUGH,
) -> PythonCode:
    stacks = [seen[tid] for seen in looks if tid in seen]
    loop, note = _loop(stacks, sources, enough) if repeats else (_paused(stacks, sources), None)
    is_own = loop is not None and not is_library(loop.file)
    last = stacks[-1].frames[::-1][:_FRAMES]
    return PythonCode(
        looks=len(looks),
        seen=len(stacks),
        gil=sum(stack.has_gil for stack in stacks),
        frames=tuple(
            PythonFrame(
                frame.function,
                frame.file,
                frame.line,
                {name: text for name, (text, _) in frame.locals.items()},
            )
            for frame in last
        ),
        loop=loop,
        note=note,
        around=None if is_own else _loop(stacks, sources, of_program=True)[0],
    )


def _looks(
    pid: int, most: int, enough: Event, longest: float = _LONGEST
) -> list[dict[int, SeenStack]]:
    """So many looks at most, in so many seconds; the first ones where ``enough`` is set
    meanwhile.
    """
    begun = time.monotonic()
    looks: list[dict[int, SeenStack]] = []
    failure: UnreadableError | None = None
    for number in range(most):
        passed = time.monotonic() - begun
        left = longest - passed
        if number and (left <= 0 or (passed >= _TIME and len(looks) >= _ENOUGH)):
            break
        if looks and enough.is_set():
            break
        try:
            looks.append(look(pid, timeout=left if looks else _FIRST_TIME))
        except UnreadableError as error:
            # Mostly memory was read while it changed. A reason that stays is not asked for twelve
            # times.
            failure = error
            if not looks and number == 2:
                break
        enough.wait(_INTERVAL if number + 1 < most else 0)
    if not looks and failure is not None:
        raise failure
    return looks


def _loop(
    stacks: Sequence[SeenStack],
    sources: Sources,
    enough: int = _ENOUGH,
    *,
    of_program: bool = False,
) -> tuple[PythonLoop | None, str | None]:
    """The innermost loop that all stacks share, and why there is none. ``of_program``: those of
    Python's library are passed over.
    """
    common = _common(stacks)
    first: PythonLoop | None = None
    note: str | None = None
    callers = [None, *((frames[0].file, frames[0].line) for frames in common)]
    for frames, caller in zip(reversed(common), reversed(callers[:-1]), strict=True):
        if frames[0].file.startswith("<frozen "):
            continue  # the interpreter's own: imports, `python -m`
        if of_program and is_library(frames[0].file):
            continue
        loops = sources.loops(
            frames[0].file, frames[0].function, frozenset(frame.line for frame in frames), caller
        )
        if isinstance(loops, str):
            note = loops
            break  # else an outer loop would be taken for the innermost one
        for loop in loops:
            if not _is_one_stay(loop, frames):
                continue
            found = _described(loop, frames, sources, enough)
            first = first or found
            if loop.kind != "counts":
                # If a loop ends by itself, a loop around it that waits counts; any other outer loop
                # does not.
                return (found if found.when is not None else first), None
    return first, note


def _paused(stacks: Sequence[SeenStack], sources: Sources) -> PythonLoop | None:
    """The loop that a blocked thread pauses in. That it goes round is not seen, so nothing founds a
    confidence.
    """
    loop, _ = _loop(stacks, sources)
    return replace(loop, confidence=None) if loop is not None and loop.when is not None else None


def _common(stacks: Sequence[SeenStack]) -> list[list[SeenFrame]]:
    """The frames that all stacks share, outermost first, each as all looks saw it.

    A frame seen at different lines is the last: what it calls is then not the same call.
    """
    common: list[list[SeenFrame]] = []
    for frames in zip(*(stack.frames for stack in stacks), strict=False):
        if len({frame.identity for frame in frames}) > 1:
            break
        common.append(list(frames))
        if len({frame.line for frame in frames}) > 1:
            break
    return common


def _is_one_stay(loop: Loop, frames: Sequence[SeenFrame]) -> bool:
    """Whether it can be the same call at all looks: what the loop does not bind is still the same
    object.
    """
    first = frames[0].locals
    return all(
        frame.locals[name][1] == address
        for frame in frames[1:]
        for name, (_, address) in first.items()
        if name not in loop.bound and name in frame.locals
    )


def _described(
    loop: Loop, frames: Sequence[SeenFrame], sources: Sources, enough: int
) -> PythonLoop:
    kind: PythonLoopKind = loop.kind
    pausing = sum(frame.line in loop.pause_lines for frame in frames)
    if kind == "works" and pausing * 2 > len(frames):
        kind = "mixed"
    asked = [way for way in loop.exits if way.foreign and way.way != "raise"]
    confidence = None
    if kind == "waits" and len(frames) >= enough:
        if len(frames) >= _ENOUGH and all(way.pure for way in asked):
            confidence = _CONFIDENCE
        elif pausing * 2 > len(frames) or all(way.pure for way in asked):
            confidence = _LIKELY
    seen = frames[-1].locals
    names = dict.fromkeys(name for way in loop.exits for name in way.names if name in seen)
    return PythonLoop(
        function=loop.function,
        file=frames[0].file,
        line=loop.line,
        end_line=loop.end_line,
        lines=tuple(sorted({frame.line for frame in frames})),
        kind=kind,
        source=sources.lines(frames[0].file, loop.line, loop.end_line),
        exits=tuple(_exit(way) for way in loop.exits),
        values=tuple(
            PythonValue(name, _short(seen[name][0]), f"{seen[name][1]:#x}") for name in names
        ),
        confidence=confidence,
        pauses=pausing == len(frames),
    )


def _exit(way: Exit) -> PythonExit:
    return PythonExit(way.line, way.way, way.when, dict(way.where), way.foreign)


def _short(text: str) -> str:
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= _VALUE_WIDTH else text[: _VALUE_WIDTH - 2] + ".."
