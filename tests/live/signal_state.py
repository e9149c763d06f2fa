# SPDX-License-Identifier: MIT
"""What a look at a process must leave as it was, as /proc shows it."""

from __future__ import annotations

from pathlib import Path

_FIELDS = ("TracerPid:", "SigPnd:", "ShdPnd:", "SigBlk:", "SigIgn:", "SigCgt:")
_PROCESSORS = "Cpus_allowed:"


def states(pid: int, *more: str, pending: bool = True) -> dict[str, dict[str, str]]:
    """By thread: its tracer, processors, masks, which signals are handled and ignored, which wait;
    and ``more`` fields. Where signals arrive all the time, ``pending`` ones are left out.
    """
    wanted = {*_FIELDS, _PROCESSORS, *more}
    wanted -= set() if pending else {"SigPnd:", "ShdPnd:"}
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        lines = (line.split("\t", 1) for line in (task / "status").read_text().splitlines())
        found[task.name] = {line[0]: line[1] for line in lines if line[0] in wanted}
    return found


def is_traced(pid: int) -> bool:
    return any(fields["TracerPid:"] != "0" for fields in states(pid).values())
