# SPDX-License-Identifier: MIT
"""JSON objects about flags: what ``diff --json``, ``find --json`` and ``registers --json`` print.
Addresses, offsets and values are hex strings. Imported for its types only.
"""

from __future__ import annotations

from typing import Literal, final

from flagfinder.interpreters.fields import PythonFields
from flagfinder.shared.spot import SpotFields
from flagfinder.shared.typed import NotRequired, TypedDict

Verdict = Literal["data-flag", "syscall-loop", "lock", "no-flag", "no-divergence"]
Outcome = Literal["leaves", "returns", "faults", "unknown"]
Known = Literal["seen", "proved", "by-code"]
Standing = Literal[
    "proved",
    "seen-in-good-run",
    "ends-loop",
    "counted",
    "by-code",
    "one-of-several",
    "assumed",
    "unsure",
    "ruled-out",
]
Because = Literal[
    "not-open",
    "end-of-file",
    "no-writer",
    "no-reader",
    "peer-closed",
    "error",
    "always-ready",
    "data",
    "room",
    "not-ready",
]


class CodeFields(TypedDict):
    """A place in code. ``module`` is null for generated code, and ``offset`` then its address.
    ``near`` is, without a ``symbol``, the closest one before. ``inlined``: functions whose bodies
    stand here, innermost first.
    """

    module: str | None
    offset: str
    symbol: str | None
    source: str | None
    near: str | None
    inlined: list[str]
    build_id: str | None


class ThreadNameFields(TypedDict):
    """A thread of one run."""

    tid: int
    name: str


class ThreadsFields(TypedDict):
    """The thread that spins, and its like in the normal run."""

    normal: ThreadNameFields | None
    spin: ThreadNameFields | None


class LoopFields(TypedDict):
    """The loop that holds the thread; ``iterations`` are those seen, ``header`` is where one
    begins, ``at`` the same in code of the program's author, null where it lies elsewhere.
    """

    kind: Literal["busy", "pause", "yield", "sleep", "syscall", "lock", "rmw"]
    function: str | None
    module: str | None
    iterations: int
    header: CodeFields
    at: SpotFields | None


class DivergencePointFields(TypedDict):
    """The branch at which the runs part for good, and where each went."""

    branch: CodeFields
    normal_target: CodeFields | None
    spin_target: CodeFields


class AddressFields(TypedDict):
    """Where the word lay in each run."""

    normal: str | None
    spin: str | None


class ValueFields(TypedDict):
    """What the word held in the loop, and with what the loop would be left. The symbols tell what
    begins there, where the values are addresses.
    """

    spin: str | None
    exit: str | None
    spin_symbol: str | None
    exit_symbol: str | None


class WriterFields(TypedDict):
    """A write to the word: ``count`` of this instruction; ``stack`` has call sites, innermost
    first.
    """

    run: Literal["normal", "spin"]
    tid: int
    thread: str
    code: CodeFields
    value: str | None
    stack: list[CodeFields]
    count: int


# ``with`` is a word of Python's own, so this can't be written as a class.
ProofFields = TypedDict(
    "ProofFields",
    {
        "outcome": Outcome,
        "instructions": int | None,
        "reached": CodeFields | None,
        "with": dict[str, str],
        "why": str,
    },
)
ProofFields.__doc__ = """What a copy of the thread did with other values in memory: ``with`` has
them by address."""


class OwedNormalFields(TypedDict):
    """The thread of the normal run that wrote."""

    pid: int
    tid: int
    name: str


class OwedFields(TypedDict):
    """A thread that would end the wait. ``code`` is its store, ``value`` what it would write.
    ``proved``: a copy of the thread did it, after what ``after`` says. ``by-code``: the store lies
    ahead of the thread, and ``after`` is what it waits in, null where it runs. ``seen``: the thread
    ``normal`` of the normal run, to which this one corresponds, did it; ``after`` is what that one
    waited for last before, null where it made no such call.
    """

    pid: int
    tid: int
    name: str
    code: CodeFields | None
    value: str | None
    known: Known
    after: str | None
    normal: NotRequired[OwedNormalFields]


class FoundFields(TypedDict):
    """A descriptor that a call found ready: ``entry`` and ``events`` (POLLIN and so on) of a poll,
    ``set`` of a select.
    """

    fd: int | None
    entry: int | None
    events: int | None
    set: Literal["read", "write", "except"] | None


class AskedCallFields(TypedDict):
    """A system call that a loop repeats. ``found``: which of several descriptors were ready.
    ``path`` is there for a live process where it is about one, or where the loop itself opened
    its file; of `connect` it is the peer's address. ``per_second`` is there where the thread's
    calls were counted.
    """

    number: int
    args: list[str]
    result: int | None
    found: list[FoundFields]
    path: NotRequired[str]
    per_second: NotRequired[int]


class InheritedFields(TypedDict):
    """The parent, from which a descriptor is. ``fd`` is its own one, null where it holds the file
    no more. ``seen``: the kernel says that both are one open file.
    """

    pid: int
    name: str
    fd: int | None
    known: Literal["seen", "assumed"]


class AskedDescriptorFields(TypedDict):
    """A descriptor of such a call. ``because`` and ``why`` tell why the call comes back at once,
    null where that is not known; ``via`` is the epoll descriptor that it is in, ``peers`` hold the
    other end. ``inherited_from`` is null where the process seems to have opened it itself.
    """

    fd: int
    target: str
    what: str
    peers: list[str]
    via: int | None
    because: Because | None
    why: str | None
    inherited_from: InheritedFields | None


class FlagFields(TypedDict):
    """A candidate for what the loop waits for. ``rank`` 1 is the answer. ``standing`` says
    how it is known, the surest first: by copies of both threads, by a good run, by a copy that left
    the loop, by the loop's code alone; or why it is not. ``confidence`` orders candidates of one
    standing, and is no probability. ``size`` is in bytes, 0 for a system call. ``proof`` is null
    where it was not tried out, and missing where that can't be tried; so are ``owed``, the threads
    that would write it, and ``owed_by_nobody``, the reason where there are none. Of a recording
    these come from the normal run. ``as_good`` is there where another word, or a poll, would end
    the wait as well, and nothing tells which is owed: it is the rank of that. ``call`` is there for
    a system call. Of a live process so are ``descriptors``, those that keep it coming back, and
    ``calls_per_second``, null where the kernel does not count such calls.
    """

    rank: int
    confidence: float
    standing: Standing
    kind: Literal["global", "heap", "tls", "stack", "shared", "syscall"]
    name: str
    module: str | None
    offset: str | None
    symbol: str | None
    field: str | None
    address: AddressFields
    size: int
    value: ValueFields
    exit_when: str | None
    access_path: str | None
    readers: list[CodeFields]
    reader_stack: list[CodeFields]
    writers: list[WriterFields]
    evidence: list[str]
    proof: NotRequired[ProofFields | None]
    owed: NotRequired[list[OwedFields]]
    owed_by_nobody: NotRequired[str | None]
    as_good: NotRequired[int]
    call: NotRequired[AskedCallFields]
    descriptors: NotRequired[list[AskedDescriptorFields]]
    calls_per_second: NotRequired[int | None]


class TestFields(TypedDict):
    """A test of a branch out of the loop: when that leaves. ``words`` are addresses of flags.
    ``tests_more``: behind it the program tests something else before the loop ends.
    """

    text: str
    operator: str | None
    words: list[str]
    tests_more: bool


class GroupFields(TypedDict):
    """The flags, by their ranks, that decide one branch out of the loop."""

    branch: CodeFields
    exit_when: str | None
    flags: list[int]
    tests: list[TestFields]


class LoopPartFields(TypedDict):
    """A test that would end the loop. ``flag`` is the rank of its likeliest flag, and ``word``,
    ``value`` and ``standing`` are those of that; null where only code tells of it. ``owed`` are the
    ids of threads that would write one of its words.
    """

    text: str
    flag: int | None
    word: str | None
    operator: str | None
    value: str | None
    standing: Standing
    owed: list[int]
    tests_more: bool


class LoopConditionFields(TypedDict):
    """What would end the loop: each part would. What the program joins by "and" is known only as
    far as the loop comes (``tests_more``).
    """

    text: str
    parts: list[LoopPartFields]
    joined: Literal["or"]


@final
class DiffFields(TypedDict):
    """The verdict on two runs. ``considered`` has words that were not sure enough; ``chains`` has a
    line for each chain of threads that wait for the one that spins; ``python`` is the code that the
    thread ran when its recording ended.
    """

    schema: Literal["flagfinder.diff/1"]
    verdict: Verdict
    reason: str
    threads: ThreadsFields
    loop: LoopFields | None
    divergence: DivergencePointFields | None
    flags: list[FlagFields]
    considered: list[FlagFields]
    groups: list[GroupFields]
    condition: LoopConditionFields | None
    notes: list[str]
    chains: list[str]
    explain: list[str]
    python: NotRequired[PythonFields | None]


@final
class DiscoveredFields(FlagFields):
    """A word of process ``pid`` that threads, ``polled_by``, polled until another one wrote it:
    ``writers`` are the stores that could end a wait. ``waits`` counts stays in loops that ended
    where the word is tested, ``rounds`` their rounds.
    """

    pid: int
    loop: LoopFields | None
    waits: int
    rounds: int
    polled_by: list[ThreadNameFields]


@final
class DiscoverFields(TypedDict):
    """The data flags of a run, those that ended the most waits first. ``ways_out`` of repeated
    rounds were seen; in ``unexplained`` of them the last round read another value, but no store of
    another thread was recorded.
    """

    schema: Literal["flagfinder.discover/1"]
    flags: list[DiscoveredFields]
    ways_out: int
    unexplained: int
    notes: list[str]


class BlockFields(TypedDict):
    """The machine when control entered a block, as the engine hands it over."""

    index: int
    code: CodeFields
    registers: dict[str, str | None]
    assembly: list[str]


class HistoryFields(TypedDict):
    """The last blocks up to the branch at which the runs part, as the engine hands them over."""

    pid: int
    tid: int
    blocks: list[BlockFields]


class BlockCodeFields(TypedDict):
    """Where a block lies."""

    module: str | None
    offset: str | None
    symbol: str | None
    source: str | None


class BlockRegistersFields(TypedDict):
    """The registers when control entered a block, null where not known; the block's instructions
    with what they read and wrote. ``index`` counts the blocks of the thread.
    """

    index: int
    code: BlockCodeFields
    registers: dict[str, str | None]
    assembly: list[str]


class RegistersFields(TypedDict):
    """The last blocks up to the branch at which the runs part, oldest first. Where they don't part
    there are none, and ``tid`` is null.
    """

    tid: int | None
    blocks: list[BlockRegistersFields]
