# SPDX-License-Identifier: MIT
"""Writing the value that ends a loop into a live process: the experiment that proves a
diagnosis.
"""

from __future__ import annotations

import json
from pathlib import Path

from flagfinder import _core
from flagfinder.flags.flags import Proof
from flagfinder.live.poke_plan import Plan, polling
from flagfinder.live.spin import spin
from flagfinder.shared.errors import FlagfinderError, UsageError
from flagfinder.shared.record import dataclass

_EXITING = 0x4  # PF_EXITING of linux/sched.h


@dataclass(frozen=True)
class Poked:
    """What was done. ``left`` says whether the thread polls the word no more; None when none was
    seen to before.

    ``after`` is what was read back, None where the process had ended by then.
    """

    plan: Plan
    before: int
    after: int | None
    left: bool | None
    ended: bool


def poke(plan: Plan) -> Poked:
    """Writes the value, and looks whether the thread goes on.

    Raises PermissionDeniedError or UnavailableError, also when the process of the plan has ended.
    """
    before, after = _core.poke(plan.pid, plan.started, plan.address, plan.size, plan.value)
    left = None
    if plan.thread is not None:
        left = not _still_polls(plan)
    return Poked(plan, before, after, left, after is None or not _lives(plan.pid))


def try_poke(plan: Plan) -> Proof:
    """What ``plan.copied`` would do, seen in a copy of it; the process is not changed.

    Raises UsageError without a thread to copy, PermissionDeniedError or UnavailableError.
    """
    if plan.copied is None:
        raise UsageError(
            "Nothing can be tried out",
            f"no thread of process {plan.pid} was seen to poll {plan.name}",
            "Name the thread to copy: --thread TID.",
        )
    return Proof.from_raw(
        json.loads(_core.try_word(plan.pid, plan.copied, plan.address, plan.size, plan.value))
    )


def _still_polls(plan: Plan) -> bool:
    assert plan.thread is not None
    try:
        found, _ = polling(spin(plan.pid, [plan.thread.tid]), plan.address)
    except FlagfinderError:
        if _runs(plan.pid, plan.thread.tid):
            raise
        return False
    return found is not None


def _lives(pid: int) -> bool:
    """Its first thread may have ended before the others."""
    try:
        return any(_runs(pid, int(task.name)) for task in Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return False


def _runs(pid: int, tid: int) -> bool:
    try:
        path = Path(f"/proc/{pid}/task/{tid}/stat")
        status = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    state, flags = (status.rpartition(")")[2].split()[number] for number in (0, 6))
    # A zombie's status is not yet asked for. One that is about to end has no memory any more.
    return state not in "ZX" and not int(flags) & _EXITING
