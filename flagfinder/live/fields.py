# SPDX-License-Identifier: MIT
"""JSON objects about live processes: what ``spin --json``, ``core --json``, ``why --json``,
``guard --json`` and ``poke --json`` print. Imported for its types only.
"""

from __future__ import annotations

from typing import Literal, final

from flagfinder.flags.fields import (
    CodeFields,
    FlagFields,
    GroupFields,
    LoopConditionFields,
    LoopFields,
    Outcome,
    Verdict,
)
from flagfinder.interpreters.fields import PythonFields, ScriptFields
from flagfinder.shared.spot import SpotFields
from flagfinder.shared.typed import NotRequired, TypedDict

SpinClass = Literal["RepeatedYield", "LongRunning", "LongWait"]
Via = Literal["replica", "in-place"]


class DescriptorFields(TypedDict):
    """A file descriptor. ``peers``: who holds the other end; ``watches``: those in an epoll
    descriptor.
    """

    fd: int
    target: str
    what: str
    peers: list[str]
    watches: list[DescriptorFields]


class FutexFields(TypedDict):
    """``expected`` is what the word held when the wait began; ``owner`` is the thread that holds
    the lock, or is waited for.
    """

    address: str
    name: str
    kind: str
    value: int | None
    expected: int
    owner: int | None


class WaitFields(TypedDict):
    """What a blocked thread waits for. ``timeout`` in ns, null for ever; ``stack`` is innermost
    first, found by scanning; ``kernel`` is the kernel's function that it sleeps in.
    """

    summary: str
    syscall: str | None
    args: list[str]
    timeout: int | None
    descriptors: list[DescriptorFields]
    futex: FutexFields | None
    kernel: str
    stack: list[CodeFields]


# ``class`` is a word of Python's own, so its field can't stand in a class.
_Class = TypedDict("_Class", {"class": SpinClass})


class SpinThreadFields(_Class):
    """One thread. ``verdict`` is null when it was not looked at. ``cpu`` is the share of the sample
    on a processor, ``wants`` the same with the time it waited for one. ``steps`` are instructions
    seen: in a copy (``via`` is ``replica``) or in the thread itself (``in-place``); ``via_reason``
    says why there, both are null where none were. ``pause_ms`` is for how long the thread itself
    stood still. ``python`` is missing where no Python runs, null where none of it could be read of
    this thread. ``script`` is there where a shell asks something in a loop.
    """

    tid: int
    name: str
    cpu: float
    wants: float
    sleeps_per_second: float
    verdict: Verdict | None
    reason: str
    loop: LoopFields | None
    flags: list[FlagFields]
    considered: list[FlagFields]
    groups: list[GroupFields]
    condition: LoopConditionFields | None
    notes: list[str]
    explain: list[str]
    wait: WaitFields | None
    steps: int
    pause_ms: float
    via: Via | None
    via_reason: str | None
    python: NotRequired[PythonFields | None]
    script: NotRequired[ScriptFields]


@final
class SpinFields(TypedDict):
    """What the threads of a process wait for, those with a flag first. ``started``, in clock ticks
    since boot, tells the process from a later one of its number. ``not_asked``: what the time limit
    left no time for.
    """

    schema: Literal["flagfinder.spin/1"]
    source: Literal["live", "core"]
    pid: int
    program: str
    started: int
    budget_ms: int
    threads: list[SpinThreadFields]
    notes: list[str]
    not_asked: list[str]


WhyKind = Literal["flag", "lock", "call", "child", "timer", "cpu"]
WhyKnown = Literal["seen", "proved", "by-code", "by-reference", "assumed"]
RootKind = Literal[
    "input",
    "peer",
    "timer",
    "stopped",
    "frozen",
    "ended",
    "computes",
    "deadlock",
    "lost-wakeup",
    "left-locked",
    "unknown",
]


class NodeFields(TypedDict):
    """A thread of some process. ``task``: what runs on no thread of its own (`goroutine 7`); the
    thread is then one of its scheduler's. Null: it is the thread itself.
    """

    pid: int
    tid: int
    name: str
    task: NotRequired[str | None]


class OwedByFields(NodeFields):
    """Who owes. ``code`` writes the flag, or is where that thread stands."""

    code: CodeFields | None


class WaitsForFields(TypedDict):
    """What is waited for; ``address`` where it is a word in memory. ``statement``: the name without
    its place, where it is one of the program's source.
    """

    kind: WhyKind
    name: str
    address: str | None
    statement: str | None


class TestedFields(SpotFields):
    """A test of a test runner. ``tid``: the thread that runs it, null where it is a task or a
    process. ``command``: what is run, where it is no function of the program; null: it is one.
    """

    pid: int
    tid: int | None
    command: NotRequired[str | None]


class LinkFields(TypedDict):
    """One step of the chain. ``owed_by`` is null where nobody is known; ``stack`` is that of the
    waiter, innermost first. ``at`` is the innermost place of the program's author in it: not of the
    system, a language's library or an interpreter, nor of a package if anything else is there.
    ``supposed``: what a copy of the thread that owes was told of its calls before it ended the
    wait.
    """

    waiter: NodeFields
    waits_for: WaitsForFields
    owed_by: OwedByFields | None
    known: WhyKnown
    reason: str
    stack: list[CodeFields]
    at: SpotFields | None
    supposed: list[str]


class RootFields(TypedDict):
    """Where the chain ends, and where that thread stands. ``note``: of a circle, why nobody is left
    to end it, where the links alone don't say that. ``assumed``: the chain comes there by a link
    that is not known, so the root may be another. ``task`` as in a node.
    """

    kind: RootKind
    pid: int | None
    tid: int | None
    name: str
    task: NotRequired[str | None]
    what: str
    at: SpotFields | None
    note: str | None
    assumed: bool


class OpenCallFields(SpotFields):
    """An open call, or a function that was inlined into it. ``own``: it is the author's. Where it
    is not ``sure`` it may be an old one. ``locals``: with ``--locals``, of a Python function, each
    variable's value as text.
    """

    own: bool
    sure: bool
    locals: NotRequired[dict[str, str]]


class ThreadStackFields(TypedDict):
    """A thread, the system call that it is in (null: it runs), and what it has open, innermost
    first.
    """

    tid: int
    name: str
    call: str | None
    frames: list[OpenCallFields]


class HomeFields(TypedDict):
    """Where a process runs; null what is not known, or not so. ``inner_pid`` is its id in its own
    pid namespace, where that is another one; ``container`` an id, ``engine`` what made it; ``pod``
    a uid of Kubernetes; ``unit`` a service or scope of systemd; ``cgroup`` a path.
    """

    pid: int
    inner_pid: int | None
    container: str | None
    engine: str | None
    pod: str | None
    unit: str | None
    cgroup: str


@final
class WhyFields(TypedDict):
    """Why a process does not go on. ``story`` has at most six lines, the most important first;
    ``next`` has the command that helps most, if one does. ``not_asked``: what the time limit left
    no time for. ``tests``: those that processes of the chain are in, ``homes``: where these run.
    ``others``: of a command's
    other processes, by ``guard`` and ``--children``. ``stacks``: of all threads, with ``--stacks``.
    """

    schema: Literal["flagfinder.why/1"]
    source: Literal["live", "core", "recordings"]
    pid: int
    program: str
    story: list[str]
    links: list[LinkFields]
    root: RootFields
    tests: NotRequired[list[TestedFields]]
    homes: NotRequired[list[HomeFields]]
    next: list[str]
    notes: list[str]
    not_asked: list[str]
    others: NotRequired[list[WhyFields]]
    stacks: NotRequired[list[ThreadStackFields]]


@final
class WhyAllFields(TypedDict):
    """The processes of a machine that hung at both of two looks, ``seconds`` apart. ``count``: of
    processes that were looked at.
    """

    schema: Literal["flagfinder.why-all/1"]
    seconds: float
    count: int
    reports: list[WhyFields]
    notes: list[str]


class LeftProcessFields(TypedDict):
    """A process that could not be ended. ``user`` is whose it is."""

    pid: int
    name: str
    user: str
    why: str


@final
class GuardFields(TypedDict):
    """What became of a guarded command. ``because`` says how the hang was noticed; ``reports`` are
    of its processes, the most telling first; ``left`` could not be ended.
    """

    schema: Literal["flagfinder.guard/1"]
    exit_code: int
    hung: bool
    because: str | None
    reports: list[WhyFields]
    notes: list[str]
    left: list[LeftProcessFields]


class TriedFields(TypedDict):
    """What a copy of the thread did with the value."""

    outcome: Outcome
    instructions: int | None
    reached: str | None
    why: str


class PokeFields(TypedDict):
    """What was to be written, and what became of it. ``written`` and ``after`` are null where
    nothing was; ``left`` says whether the thread polls the word no more, null where it did not poll
    it before. ``proof`` is there with --dry-run.
    """

    pid: int
    address: str
    size: int
    name: str
    value: str
    before: str | None
    written: str | None
    after: str | None
    thread: int | None
    left: bool | None
    ended: bool
    why: str
    proof: NotRequired[TriedFields]
