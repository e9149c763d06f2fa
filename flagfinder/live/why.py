# SPDX-License-Identifier: MIT
"""Why a live process does not go on, or a dead or recorded one did not: who owes what it waits
for, and what keeps them, across processes, to the end of the chain.

The engine owns this (``core/live/src/why``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace

from flagfinder import _core
from flagfinder.live.spin import DEFAULT_BUDGET, DEFAULT_CORE_BUDGET
from flagfinder.live.tree import asked_in_code, descendants
from flagfinder.live.why_chain import WhyReport
from flagfinder.shared.machine import require_own_proc
from flagfinder.shared.visible import quote_command
from flagfinder.trace.trace import Trace

# Ends of chains that what a script or Python asks may explain.
_OF_CODE = ("unknown", "timer", "deadlock")


def why(
    pid: int,
    thread: int | None = None,
    *,
    budget: float = DEFAULT_BUDGET,
    told: Callable[[int, list[int]], object] | None = None,
) -> WhyReport:
    """Follows who owes what ``thread`` of process ``pid`` waits for; by default the thread that
    polls a word, or the first.

    ``budget`` is the longest pause of each thread that is stepped, in seconds; ``told`` hears the
    number of threads and which are about to be stepped. Raises what ``spin`` raises.
    """
    require_own_proc()
    own = [pid, *descendants(pid)]
    asked, notes = asked_in_code(own)
    raw = json.loads(_core.why(pid, thread, budget, json.dumps(asked), told))
    # The chain may end in code of a process that none of these started.
    report = WhyReport.from_raw(raw)
    chain = dict.fromkeys(link.waiter.pid for link in report.links)
    others = [
        other for other in (*chain, report.root.pid) if other is not None and other not in own
    ]
    if others and report.root.kind in _OF_CODE:
        more, unread = asked_in_code(others)
        if more:
            raw = json.loads(_core.why(pid, thread, budget, json.dumps(asked + more), None))
            notes += unread
    raw["notes"] += notes
    return WhyReport.from_raw(raw)


def why_recorded(normal: Trace, spin: Trace, thread: int | None = None) -> WhyReport:
    """Follows what ``thread`` of the recording ``spin`` waits for back to what was otherwise in
    the recording ``normal``, of a good run; by default the thread that polls a word, or the first.

    Raises BadTraceError when a recording is damaged where it is needed.
    """
    report = WhyReport.from_json(_core.why_recorded(normal.core, spin.core, thread))
    report.raw["next"] = [quote_command("flagfinder", "diff", normal.path, spin.path, "--explain")]
    return replace(report, next=tuple(report.raw["next"]))


def why_of_core(
    path: str | os.PathLike[str],
    thread: int | None = None,
    *,
    sysroot: str | os.PathLike[str] | None = None,
    program: str | os.PathLike[str] | None = None,
    budget: float = DEFAULT_CORE_BUDGET,
) -> WhyReport:
    """The same of a dead process. What a core does not hold, such as the other end of a pipe, ends
    the chain as unknown.

    Takes and raises what ``look_at_core`` does.
    """
    raw = _core.why_of_core(
        os.fspath(path),
        None if sysroot is None else os.fspath(sysroot),
        None if program is None else os.fspath(program),
        thread,
        budget,
    )
    return WhyReport.from_json(raw)
