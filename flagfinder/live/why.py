# SPDX-License-Identifier: MIT
"""Why a live process does not go on, or a dead or recorded one did not: who owes what it waits
for, and what keeps them, across processes, to the end of the chain.

The engine owns this (``core/live/src/why``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from flagfinder import _core
from flagfinder.interpreters.python_sources import is_library
from flagfinder.live.deadline import (
    DEFAULT_BUDGET,
    DEFAULT_CORE_BUDGET,
    DEFAULT_TIMEOUT,
    Deadline,
    hearer,
    not_asked,
)
from flagfinder.live.tree import asked_in_code, descendants
from flagfinder.live.why_chain import WhyReport
from flagfinder.shared.own_proc import require_own_proc
from flagfinder.shared.record import replace
from flagfinder.shared.visible import quote_command

if TYPE_CHECKING:
    from flagfinder.interpreters.fields import InSourceFields, SourceSpotFields
    from flagfinder.live.fields import LinkFields, RootFields, WhyFields
    from flagfinder.shared.spot import SpotFields
    from flagfinder.trace.trace import Trace

    Hear = Callable[[int, list[int], str | None], object]

# So many callers of a place are told.
_CALLERS = 3
# Ends of chains that what a script or Python asks may explain.
_OF_CODE = ("unknown", "timer", "deadlock")


def why(
    pid: int,
    thread: int | None = None,
    *,
    budget: float = DEFAULT_BUDGET,
    timeout: float = DEFAULT_TIMEOUT,
    stacks: bool = False,
    variables: bool = False,
    told: Callable[[int, list[int]], object] | None = None,
    so_far: Callable[[str], object] | None = None,
) -> WhyReport:
    """Follows who owes what ``thread`` of process ``pid`` waits for; by default the thread that
    polls a word, or the first.

    ``budget`` is the longest pause of each thread that is stepped, in seconds. After ``timeout``
    seconds nothing new is begun, and the report says what was left out. With ``stacks`` it has the
    open calls of all threads, with ``variables`` also those of Python's functions. ``told`` hears
    the number of threads and which are about to be stepped, ``so_far`` JSON of the report as far as
    it is known. Raises what ``spin`` raises.
    """
    raw = why_fields(
        pid,
        thread,
        budget=budget,
        timeout=timeout,
        stacks=stacks,
        variables=variables,
        told=told,
        so_far=so_far,
    )
    return WhyReport.from_raw(raw)


def why_fields(
    pid: int,
    thread: int | None,
    *,
    budget: float,
    timeout: float,
    stacks: bool,
    variables: bool,
    told: Callable[[int, list[int]], object] | None,
    so_far: Callable[[str], object] | None,
) -> WhyFields:
    """The same as the engine has it."""
    require_own_proc()
    deadline = Deadline.after(timeout)
    if so_far is not None:
        so_far(_core.why_at_first(pid))
    own = [pid, *descendants(pid)]
    in_source, notes = asked_in_code(own)

    def engine(known: InSourceFields, hear: Hear | None) -> WhyFields:
        raw: WhyFields = json.loads(
            _core.why(pid, thread, budget, json.dumps(known), deadline.for_engine, stacks, hear)
        )
        return raw

    raw = engine(in_source, hearer(told, so_far))
    # The chain may end in code of a process that none of these started.
    root = raw["root"]
    chain = dict.fromkeys(link["waiter"]["pid"] for link in raw["links"])
    others = [other for other in (*chain, root["pid"]) if other is not None and other not in own]
    if others and root["kind"] in _OF_CODE:
        if deadline.is_over:
            not_asked(raw, deadline.over, "the code of Python and shells at the end of the chain")
        else:
            if so_far is not None:
                so_far(json.dumps(raw))
            more, unread = asked_in_code(others)
            if more["asked"]:
                raw = engine(
                    {
                        "asked": in_source["asked"] + more["asked"],
                        "stacks": in_source["stacks"] | more["stacks"],
                    },
                    None,
                )
                notes += unread
            _add_places(raw, more)
    raw["notes"] += notes
    if variables:
        _add_variables(raw, in_source)
    return raw


def _add_places(raw: WhyFields, in_source: InSourceFields) -> None:
    """To the threads of Python of which the engine has none, as it was not told of their calls."""
    root = raw["root"]
    told: list[tuple[int | None, LinkFields | RootFields]] = [(root["tid"], root)]
    told += [(link["waiter"]["tid"], link) for link in raw["links"]]
    for tid, waits in told:
        frames = in_source["stacks"].get(tid, []) if tid is not None else []
        own = [frame for frame in frames if not is_library(frame["file"])]
        if own and waits.get("at") is None:
            outermost, *inner = (_place(frame) for frame in reversed(own[: 1 + _CALLERS]))
            for at in inner:
                at["called_at"] = outermost
                outermost = at
            waits["at"] = outermost


def _place(frame: SourceSpotFields) -> SpotFields:
    return {
        "function": frame["function"],
        "file": frame["file"],
        "line": frame["line"],
        "module": None,
        "offset": None,
    }


def _add_variables(raw: WhyFields, in_source: InSourceFields) -> None:
    """To the open calls that are Python's: a thread's stand in the same order in both."""
    for stack in raw.get("stacks", ()):
        seen = iter(in_source["stacks"].get(stack["tid"], ()))
        of_python = (frame for frame in stack["frames"] if frame["module"] is None)
        for frame, source in zip(of_python, seen, strict=False):
            if (frame["function"], frame["line"]) == (source["function"], source["line"]):
                frame["locals"] = source.get("locals", {})


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
    timeout: float = DEFAULT_TIMEOUT,
    stacks: bool = False,
    so_far: Callable[[str], object] | None = None,
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
        Deadline.after(timeout).for_engine,
        stacks,
        hearer(None, so_far),
    )
    return WhyReport.from_json(raw)
