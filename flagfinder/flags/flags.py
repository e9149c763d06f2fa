# SPDX-License-Identifier: MIT
"""The verdict on two runs: which loop spins, on what, what would end it, who should have written
it.

The engine owns this type (``core/flags``); here it gets Python types. ``Report.raw`` is the object
that ``flagfinder diff --json`` prints, and keeps fields that this version of the package doesn't
know.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from flagfinder import _core
from flagfinder.diff.diff import Divergence
from flagfinder.flags.code import Code, parse_hex
from flagfinder.flags.loop_condition import LoopCondition
from flagfinder.flags.python_code import add_code, code_of
from flagfinder.flags.python_objects import prefer_programs_words
from flagfinder.interpreters.python import PythonCode
from flagfinder.shared.build import build, check_schema
from flagfinder.shared.record import dataclass, field
from flagfinder.shared.spot import Spot
from flagfinder.trace.trace import Trace

if TYPE_CHECKING:
    from flagfinder.flags.fields import (
        AskedDescriptorFields,
        Because,
        CodeFields,
        DiffFields,
        DivergencePointFields,
        FlagFields,
        InheritedFields,
        Known,
        LoopFields,
        Outcome,
        OwedFields,
        ProofFields,
        Standing,
        ThreadNameFields,
        Verdict,
        WriterFields,
    )


@dataclass(frozen=True)
class ThreadName:
    tid: int | None
    name: str | None


@dataclass(frozen=True)
class Loop:
    """The loop that holds the spinning thread's tail. ``iterations`` are those the trace shows;
    ``at`` is where it begins in code of the program's author, None where it lies elsewhere.
    """

    kind: str
    function: str | None
    module: str | None
    iterations: int | None
    at: Spot | None = None


@dataclass(frozen=True)
class DivergencePoint:
    """The branch at which the runs part for good, and where each went."""

    branch: Code
    normal_target: Code | None
    spin_target: Code | None


@dataclass(frozen=True)
class Writer:
    """A write to the flag. ``run`` is ``normal`` or ``spin``; ``stack`` is innermost first."""

    run: str
    tid: int | None
    thread: str | None
    code: Code | None
    value: str | None
    stack: tuple[Code, ...]


@dataclass(frozen=True)
class Proof:
    """What a copy of the thread did once ``words`` (address to value) were written there. The
    process never saw them.

    ``outcome``: it ``leaves`` the loop, ``returns`` to it, ``faults``, or that is ``unknown``, for
    the reason ``why``. ``instructions`` were executed until it was at ``reached``, outside its
    loop; None where it did nothing new.
    """

    outcome: Outcome
    instructions: int | None
    reached: Code | None
    words: Mapping[int, int]
    why: str

    @classmethod
    def from_raw(cls, raw: ProofFields) -> Proof:
        """Reads a PROOF object of the engine's JSON."""
        words = {int(address, 16): int(value, 16) for address, value in raw["with"].items()}
        return build(cls, raw, reached=_maybe_code(raw["reached"]), words=words)


@dataclass(frozen=True)
class Owed:
    """A thread that would write the flag so that the wait ends: ``value`` at ``code``.

    ``known`` is ``proved`` where a copy of the thread did it, after what ``after`` says;
    ``by-code`` where the store lies ahead of the thread, which waits in ``after`` or, with None,
    runs; ``seen`` where the thread ``normal`` of the normal run did it, which this one corresponds
    to. ``after`` is then what that one waited for last before.
    """

    pid: int
    tid: int
    name: str
    code: Code | None
    value: int | None
    known: Known
    after: str | None
    normal: ThreadName | None = None

    @classmethod
    def from_raw(cls, raw: OwedFields) -> Owed:
        """Reads an OWED object of the engine's JSON."""
        code, value = _maybe_code(raw["code"]), parse_hex(raw["value"])
        return build(cls, raw, code=code, value=value, normal=_thread(raw.get("normal")))


@dataclass(frozen=True)
class AskedDescriptor:
    """A descriptor of a system call that a loop repeats. ``why`` tells why the call comes back at
    once, None where that is not known; ``inherited_from`` is None where the process seems to have
    opened it itself. ``via`` is the epoll descriptor that it is in.
    """

    fd: int
    what: str
    peers: tuple[str, ...]
    via: int | None
    because: Because | None
    why: str | None
    inherited_from: InheritedFields | None

    @classmethod
    def from_raw(cls, raw: AskedDescriptorFields) -> AskedDescriptor:
        """Reads a descriptor of the engine's JSON."""
        return build(cls, raw)


@dataclass(frozen=True)
class Flag:
    """One candidate for what the loop waits for. ``rank`` 1 is the answer.

    ``standing`` says how it is known. ``confidence`` (0 to 1) orders candidates of one standing: a
    sum of hand-set weights, one for each piece of evidence, and no probability.

    Addresses and values are ints; ``value_exit`` is what the normal run left the loop with. The
    symbols of values tell what begins there, where they are addresses. ``reader_stack`` holds the
    calls within the loop that led to the last read, innermost first. ``proof`` is None where
    nothing was tried out in a copy of the thread. ``owed`` are the threads that would write it;
    ``owed_by_nobody`` says why there are none. ``as_good`` is the rank of what would end
    the wait as well, a word or a poll, where nothing tells which is owed. ``descriptors`` and
    ``calls_per_second`` are those of a system call of a live process.
    """

    rank: int
    confidence: float
    standing: Standing
    kind: str
    name: str
    module: str | None
    offset: int | None
    symbol: str | None
    field: str | None
    normal_address: int | None
    spin_address: int | None
    size: int | None
    value_spin: int | None
    value_exit: int | None
    value_spin_symbol: str | None
    value_exit_symbol: str | None
    exit_when: str | None
    access_path: str | None
    readers: tuple[Code, ...]
    reader_stack: tuple[Code, ...]
    writers: tuple[Writer, ...]
    evidence: tuple[str, ...]
    proof: Proof | None
    owed: tuple[Owed, ...]
    owed_by_nobody: str | None
    as_good: int | None = None
    descriptors: tuple[AskedDescriptor, ...] = ()
    calls_per_second: int | None = None


@dataclass(frozen=True)
class Report:
    """What ``flagfinder diff`` found. ``raw`` is the JSON object it was made from."""

    verdict: Verdict
    reason: str
    normal_thread: ThreadName | None
    spin_thread: ThreadName | None
    loop: Loop | None
    divergence: DivergencePoint | None
    flags: tuple[Flag, ...]
    explain: tuple[str, ...]
    notes: tuple[str, ...]
    # Which thread waits for which, a line for each chain that leads to ``spin_thread``.
    chains: tuple[str, ...]
    # What would end the loop, by all flags.
    condition: LoopCondition | None
    # What the thread ran when its recording ended.
    python: PythonCode | None
    raw: DiffFields = field(repr=False, compare=False)

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Reads the object that ``flagfinder diff --json`` prints. Raises ValueError on another
        schema.
        """
        return cls.from_raw(json.loads(text))

    @classmethod
    def from_raw(cls, raw: DiffFields) -> Report:
        """The same of the object itself."""
        check_schema(raw, "flagfinder.diff/1")
        threads = raw.get("threads")
        return build(
            cls,
            raw,
            normal_thread=_thread(threads.get("normal") if threads else None),
            spin_thread=_thread(threads.get("spin") if threads else None),
            loop=loop_from_raw(raw.get("loop")),
            divergence=_divergence(raw.get("divergence")),
            flags=tuple(flag_from_raw(item) for item in raw.get("flags") or ()),
            condition=LoopCondition.from_raw(condition)
            if (condition := raw.get("condition"))
            else None,
            python=PythonCode.from_raw(python) if (python := raw.get("python")) else None,
            raw=raw,
        )

    @property
    def flag(self) -> Flag | None:
        """The answer: the flag at rank 1, or None."""
        return self.flags[0] if self.flags else None

    @property
    def waits_until(self) -> str | None:
        """The expression that ends the thread's Python loop, where that is founded."""
        loop = self.python.loop if self.python is not None else None
        return loop.when if loop is not None and loop.is_answer else None


def find_flags(
    spin: Trace,
    normals: Sequence[Trace] = (),
    divergence: Divergence | None = None,
    thread: int | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Report:
    """Finds what the spinning thread of ``spin`` polls, with evidence from good runs.

    Works without a normal run too, on less evidence. ``divergence`` saves computing it again.
    ``thread`` is the id of the spin run's thread that the answer is about; None: the one that tells
    most. ``progress`` is called as by ``diff``.

    Raises BadTraceError when a trace is damaged where it is needed.
    """
    cores = [normal.core for normal in normals]
    found = _core.find_flags(
        spin.core, cores, divergence.core if divergence else None, thread, progress
    )
    raw: DiffFields = json.loads(found)
    codes = spin.end.get("code", {}) if spin.end is not None else {}
    waiting = raw["threads"]["spin"] if raw["threads"] is not None else None
    code = code_of(codes, waiting["tid"]) if waiting is not None else None
    prefer_programs_words(raw, has_code=code is not None)
    if code is not None:
        add_code(raw, code)
    return Report.from_raw(raw)


def _maybe_code(raw: CodeFields | None) -> Code | None:
    return None if raw is None else Code.from_raw(raw)


def _thread(raw: ThreadNameFields | None) -> ThreadName | None:
    return None if raw is None else build(ThreadName, raw)


def loop_from_raw(raw: LoopFields | None) -> Loop | None:
    """Reads a LOOP object of the engine's JSON."""
    if raw is None:
        return None
    at = raw.get("at")
    return build(Loop, raw, at=None if at is None else Spot.from_raw(at))


def _divergence(raw: DivergencePointFields | None) -> DivergencePoint | None:
    if raw is None or raw.get("branch") is None:
        return None
    return DivergencePoint(
        Code.from_raw(raw["branch"]),
        _maybe_code(raw.get("normal_target")),
        _maybe_code(raw.get("spin_target")),
    )


def _writer(raw: WriterFields) -> Writer:
    return build(Writer, raw, code=_maybe_code(raw.get("code")), stack=_codes(raw.get("stack")))


def _codes(raw: Sequence[CodeFields] | None) -> tuple[Code, ...]:
    return tuple(Code.from_raw(item) for item in raw or ())


def flag_from_raw(raw: FlagFields) -> Flag:
    """Reads a FLAG object of the engine's JSON."""
    address, value, proof = raw.get("address") or {}, raw.get("value") or {}, raw.get("proof")
    return build(
        Flag,
        raw,
        standing=raw.get("standing", "by-code"),  # older reports have none
        offset=parse_hex(raw.get("offset")),
        normal_address=parse_hex(address.get("normal")),
        spin_address=parse_hex(address.get("spin")),
        value_spin=parse_hex(value.get("spin")),
        value_exit=parse_hex(value.get("exit")),
        value_spin_symbol=value.get("spin_symbol"),
        value_exit_symbol=value.get("exit_symbol"),
        readers=_codes(raw.get("readers")),
        reader_stack=_codes(raw.get("reader_stack")),
        writers=tuple(_writer(item) for item in raw.get("writers") or ()),
        proof=Proof.from_raw(proof) if proof else None,
        owed=tuple(Owed.from_raw(item) for item in raw.get("owed") or ()),
        descriptors=tuple(AskedDescriptor.from_raw(item) for item in raw.get("descriptors") or ()),
    )
