# SPDX-License-Identifier: MIT
"""Which process is meant: by a name, by the id of one of its threads, or of a child that has ended.

In: what the user wrote. Out: a :class:`Patient`.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from flagfinder import _core
from flagfinder.shared.errors import UsageError
from flagfinder.shared.proc_lines import proc_lines

# What runs the script that it is given.
_INTERPRETERS = re.compile(r"(python|node|ruby|perl|php|(ba|da|z|k)?sh|java|lua)[\d.]*")
# Names that the kernel cuts have so many bytes.
_LONGEST_NAME = 15
_MOST_LISTED = 8
_LONGEST_LINE = 80  # columns of a command
_OF_KERNEL = 0x00200000  # PF_KTHREAD of linux/sched.h
NOT_OF_KERNEL = "`ps --ppid 2 -p 2 --deselect` lists the processes of programs."


class Patient(NamedTuple):
    """A process; the thread with which to begin, if it was named; and why it is this one, where the
    user wrote something else.
    """

    pid: int
    thread: int | None = None
    note: str | None = None


def by_id(number: int) -> Patient:
    """The process that a number leads to. /proc shows a process at the number of a thread, too, of
    which half of the files are those of the thread.
    """
    status = status_of(number)
    process, parent = status.get("Tgid"), status.get("PPid", "0")
    if process is not None and process != str(number):
        note = f"{number} is a thread of process {process}: the chain begins with it"
        return Patient(int(process), number, note)
    if has_ended(status) and parent != "0":
        note = (
            f"process {number} has ended, and its parent has not asked for its exit status: the "
            f"parent, process {parent}, is asked instead"
        )
        return Patient(int(parent), None, note)
    if is_of_kernel(number):
        found = f"it is a thread of the kernel, {status['Name']}"
        raise UsageError(f"{number} is no process of a program", found, NOT_OF_KERNEL)
    return Patient(number)


def by_name(name: str) -> Patient:
    """The process of this name: that of its program, of the script that an interpreter runs, or the
    one that it gave itself. Of several the one from which all others descend. Raises UsageError
    where there is none, or no such one.
    """
    if not name:
        raise UsageError("No process has no name", "NAME is empty", "`ps -e` lists the processes.")
    ours = set(ancestors(os.getpid()))
    found = sorted(pid for pid in processes() if pid not in ours and name in _names(pid))
    if not found:
        raise UsageError(
            f"No process is called {name}",
            "neither its program, nor its script, nor its own name",
            "`ps -e` lists the processes.",
        )
    heads = [pid for pid in found if set(found) <= set(_family(pid, found))]
    if not heads:
        listed = [f"{pid}  {_command(pid)}" for pid in found[:_MOST_LISTED]]
        more = [f"and {len(found) - _MOST_LISTED} more"] if len(found) > _MOST_LISTED else []
        raise UsageError(
            f"{len(found)} processes are called {name}",
            "\n".join([*listed, *more]),
            "Give one of these ids: flagfinder why PID",
        )
    pid = heads[0]
    others = len(found) - 1
    note = f"process {pid} is called {name}: {_command(pid)}"
    if others:
        note += f"; {others} more {'descends' if others == 1 else 'descend'} from it"
    return Patient(pid, None, note)


def status_of(tid: int | None) -> dict[str, str]:
    """What /proc/TID/status says; nothing where there is no such thread."""
    try:
        lines = proc_lines(f"/proc/{tid}/status")
    except OSError:
        return {}
    fields = (line.partition(":") for line in lines)
    return {name: value.strip() for name, _, value in fields}


def has_ended(status: dict[str, str]) -> bool:
    """Whether nothing of the process is left but its exit status: other threads may live on."""
    return status.get("State", "").startswith("Z") and status.get("Threads") == "1"


def is_of_kernel(pid: int | None) -> bool:
    """Whether it is a thread of the kernel's own, which runs no program."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
    return bool(int(stat.rpartition(")")[2].split()[6]) & _OF_KERNEL)


def processes() -> Iterator[int]:
    """Those of which more is left than an exit status."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and not has_ended(status_of(int(entry.name))):
            yield int(entry.name)


def _names(pid: int) -> set[str]:
    """Its own name, the names of its program and of the script that it runs."""
    words = _words(pid)
    paths = words[:1]
    with contextlib.suppress(OSError):
        paths.append(str(Path(f"/proc/{pid}/exe").readlink()).removesuffix(" (deleted)"))
    names = {path.rpartition("/")[2] for path in paths}
    if any(_INTERPRETERS.fullmatch(name) for name in names):
        script = next((word for word in words[1:] if not word.startswith("-")), "")
        names.add(script.rpartition("/")[2])
    own = status_of(pid).get("Name", "")
    # A longer name of its program is there whole.
    return names | {own} if len(own.encode()) < _LONGEST_NAME else names or {own}


def _words(pid: int) -> list[str]:
    try:
        return [os.fsdecode(word) for word in _core.arguments_of(pid).split(b"\0") if word]
    except OSError:
        return []


def _command(pid: int) -> str:
    line = " ".join(_words(pid)) or status_of(pid).get("Name", "")
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 1]}…"


def ancestors(pid: int) -> Iterator[int]:
    """The process, and those that it descends from."""
    while pid > 0:
        yield pid
        pid = int(status_of(pid).get("PPid", "0"))


def _family(head: int, pids: list[int]) -> Iterator[int]:
    return (pid for pid in pids if head in ancestors(pid))
