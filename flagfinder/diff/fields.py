# SPDX-License-Identifier: MIT
"""How two runs relate, as the engine hands it over (``core/diff/src/divergence.rs`` says more).
Imported for its types only.
"""

from __future__ import annotations

from typing import Literal

from flagfinder.shared.typed import TypedDict


class PlaceFields(TypedDict):
    """A place in code. ``module`` is empty for code without one."""

    module: str
    offset: int


class ThreadRefFields(TypedDict):
    """A thread of one run."""

    pid: int
    image: int
    program: str
    tid: int
    name: str


class ThreadPairFields(TypedDict):
    """A thread of the spin run and its like in the normal run."""

    normal: ThreadRefFields | None
    spin: ThreadRefFields | None
    confidence: float
    why: str


class SuccessorFields(TypedDict):
    """One way out of a branch, and how often each run took it. ``target`` is null where it leaves
    the function.
    """

    target: PlaceFields | None
    normal: int
    spin: int
    repeated: bool


class OutcomeFields(TypedDict):
    """A branch and its successors."""

    instruction: PlaceFields
    successors: list[SuccessorFields]


class FrameFields(TypedDict):
    """An open call of the spinning thread."""

    call_site: PlaceFields | None
    function: PlaceFields
    at: PlaceFields
    signal_handler: bool


class NormalLoopFields(TypedDict):
    """The loop in the normal runs' compared calls."""

    left: int
    most_iterations: int
    longest: int
    longest_ns: int
    ends_inside: bool
    open_ns: int
    open_iterations: int
    most_of_run: bool


class SpinLoopFields(TypedDict):
    """The loop that holds the thread."""

    header: PlaceFields
    blocks: list[PlaceFields]
    iterations: int
    entered: int
    length: int
    earlier_stays: int
    longest_earlier: int
    lasted: int
    longest_earlier_ns: int
    normal: NormalLoopFields | None


class ClosedFields(TypedDict):
    """A call site of an open frame whose finished calls did what no normal run's did."""

    frame: int
    call_site: PlaceFields
    spin_only: int
    normal_only: int
    shared: int


class PartingFields(TypedDict):
    """Where one spinning thread parts from the normal runs."""

    thread: ThreadRefFields
    normal_thread: ThreadRefFields | None
    kind: Literal[
        "loop-exit",
        "inside-loop",
        "path-to-loop",
        "path-to-call",
        "callee",
        "only-in-spin",
        "alike",
    ]
    branch: PlaceFields | None
    block: PlaceFields | None
    normal_target: PlaceFields | None
    spin_target: PlaceFields | None
    occurrence: int
    spin_index: int
    spin_pos: int | None
    normal_index: int | None
    frame: int
    loop_frame: int
    context: Literal["paired", "other-thread", "same-caller", "same-function", "none"]
    stack: list[FrameFields]
    spin_loop: SpinLoopFields
    others: list[OutcomeFields]
    own_exits: list[OutcomeFields]
    closed: list[ClosedFields]
    second_guess: bool
    confidence: float
    why: list[str]


class BlockedFields(TypedDict):
    """A thread that is alive at the end of the spin run, and waits."""

    thread: ThreadRefFields
    syscall: int
    waiting: int
    stack: list[FrameFields]


class DivergenceFields(TypedDict):
    """How two runs relate: ``partings`` has the most telling first."""

    verdict: Literal["parted", "no-divergence"]
    reason: str
    threads: list[ThreadPairFields]
    partings: list[PartingFields]
    blocked: list[BlockedFields]
    notes: list[str]
    unlike: list[str]
