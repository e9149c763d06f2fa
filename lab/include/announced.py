# SPDX-License-Identifier: MIT
"""The truth of programs that say it on their own:
``python -m announced FORMAT [SECONDS] [NAME=FD ..]``.

    flag      `FLAG address=0x.. size=N` on stderr; the last one counts (samples, tests/live/cases)
    flags     the last two count: the second is `also`
    thread    the same as flag, but any thread of the process may be the one that waits
    busy      the same, but the thread that used most of the processor is the one that waits
    busiest   that thread is the one that waits; its output is not read
    symbol:NAME:SIZE:FILE   the word of a symbol, as nm tells of the file that it runs
    truth     `TRUTH kind pid tid` on stdout: the root (tests/live/why)
    blamed    `BLAMED tid` on stdout: the root
    number    a number on the first line of stdout: the root is the process of that number
    pair      `SERVER CLIENT` on stdout, two processes: the second waits
    tid       `pid P tid T` or `pid P spinning_tid T` on stdout: the thread that waits
    roles:ROLE   `ROLE tid` on stdout, once that role is there (tests/events/programs)
    names:NAME   the roles of threads are their names, once there is one of this name
    line      a line on stdout: it is ready
    pid       only that it runs; its output is not read

NAME=FD: a descriptor whose number its source fixes. What is said to be on stdout may be on stderr,
too: `guard` passes it on there.

In: the files stdout and stderr in LAB_RUN, the process LAB_PID. Out: lines of LAB_TRUTH, once the
process has run for SECONDS (default 2), so that it stands. LAB_PID is 0 for one that has ended.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path


def main() -> int:
    """Writes the truth, or says what it lacks."""
    what, *more = sys.argv[1:]
    descriptors = [f"fd {one.replace('=', ' ')}" for one in more if "=" in one]
    seconds = float(next((one for one in more if "=" not in one), "2"))
    pid = own(int(os.environ["LAB_PID"]))
    name, _, given = what.partition(":")
    lines = FORMATS[name](pid, given)
    if not lines:
        print("it has not announced it", file=sys.stderr)
        return 1
    if pid and age(pid) < seconds:
        print("it has not run for long", file=sys.stderr)
        return 1
    told = [f"target {pid}"] if pid else []
    with Path(os.environ["LAB_TRUTH"]).open("a", encoding="utf-8") as file:
        file.write("\n".join([*told, *lines, *descriptors, "ready", ""]))
    return 0


def _said(*streams: str) -> str:
    folder = Path(os.environ["LAB_RUN"])
    found = [folder / one for one in streams or ("stdout", "stderr")]
    return "".join(one.read_text(errors="replace") for one in found if one.exists())


def _flag(waiter: str, names: "tuple[str, ...]" = ("flag",)) -> "list[str]":
    found = re.findall(r"^FLAG address=(0x[0-9a-fA-F]+) size=(\d+)$", _said("stderr"), re.M)
    if len(found) < len(names):
        return []
    words = zip(names, found[-len(names) :], strict=True)
    return [waiter, *(f"word {name} {place} {size}" for name, (place, size) in words)]


def _busy(pid: int) -> str:
    return f"role waiter {pid} {busiest(pid) if pid else pid}"


def _main(pid: int) -> str:
    return f"role waiter {pid} {pid}"


def _symbol(pid: int, given: str) -> "list[str]":
    name, size, image = given.split(":")
    return [_busy(pid), f"word flag {symbol(name, image, pid):#x} {size}"]


def _found(pattern: str, *lines: str) -> "list[str]":
    """The lines with what the pattern found on stdout."""
    told = re.search(pattern, _said(), re.M)
    return [line.format(*told.groups()) for line in lines] if told else []


def _truth(pid: int, _: str) -> "list[str]":
    found = _found(r"^TRUTH \w+ (\d+) (\d+)$", "role root {} {}")
    blamed = [line for line in found if not line.startswith("role root 0")]
    return [_main(pid), *blamed] if found else []


def _roles(_: int, wanted: str) -> "list[str]":
    roles = dict(re.findall(r"^(\w+) (\d+)$", _said(), re.M))
    if wanted not in roles:
        return []
    return [f"role {name} {_process(int(tid))} {tid}" for name, tid in roles.items()]


def _names(pid: int, wanted: str) -> "list[str]":
    tasks = list(Path(f"/proc/{pid}/task").iterdir())
    names = [("_".join((task / "comm").read_text().split()), task.name) for task in tasks]
    told = [f"role {name} {pid} {tid}" for name, tid in names if name]
    return told if wanted in dict(names) else []


FORMATS: "dict[str, Callable[[int, str], list[str]]]" = {
    "flag": lambda pid, _: _flag(_main(pid)),
    "flags": lambda pid, _: _flag(_main(pid), ("flag", "also")),
    "thread": lambda pid, _: _flag(f"role process {pid}"),
    "busy": lambda pid, _: _flag(_busy(pid)),
    "busiest": lambda pid, _: [_busy(pid)],
    "symbol": _symbol,
    "truth": _truth,
    "blamed": lambda pid, _: _found(r"BLAMED (\d+)", _main(pid), f"role root {pid} {{}}"),
    "number": lambda pid, _: _found(r"^(\d+)$", _main(pid), "role root {}"),
    "pair": lambda *_: _found(r"^(\d+) (\d+)", "role server {0}", "role waiter {1} {1}"),
    "tid": lambda *_: _found(
        r"^pid (\d+) (?:spinning_)?tid (\d+)", "target {0}", "role waiter {0} {1}"
    ),
    "roles": _roles,
    "names": _names,
    "line": lambda pid, _: _found(r"\n", _main(pid)),
    "pid": lambda pid, _: [_main(pid)],
}


def busiest(pid: int) -> int:
    """The thread that used most of the processor."""
    tasks = list(Path(f"/proc/{pid}/task").iterdir())
    return int(max(tasks, key=lambda task: int((task / "schedstat").read_text().split()[0])).name)


def symbol(name: str, image: str, pid: int) -> int:
    """Where a symbol lies: a fixed-address program has its address in the file."""
    for table in ([], ["-D"]):
        listed = subprocess.run(["nm", *table, image], capture_output=True, text=True, check=True)
        found = re.search(rf"^([0-9a-f]+) \w {re.escape(name)}$", listed.stdout, re.M)
        if found:
            break
    else:
        sys.exit(f"{image} has no symbol {name}")
    with Path(image).open("rb") as file:
        is_fixed = file.read(18)[16] == 2
    if is_fixed or not pid:
        return int(found[1], 16)
    inode = Path(image).stat().st_ino
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        place, _, offset, _, its, *_ = line.split()
        if int(its) == inode and int(offset, 16) == 0:
            return int(found[1], 16) + int(place.split("-")[0], 16)
    sys.exit(f"process {pid} has not mapped {image}")


def own(pid: int) -> int:
    """The program itself where LAB_PID is flagfinder, that runs it."""
    while pid and b"flagfinder" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
        told = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if not told:
            sys.exit("flagfinder has not started it")
        pid = int(told[0])
    return pid


def _process(tid: int) -> int:
    """The process of a thread; 0, which is any, of one that is gone."""
    try:
        return int(Path(f"/proc/{tid}/status").read_text().partition("\nTgid:")[2].split()[0])
    except FileNotFoundError:
        return 0


def age(pid: int) -> float:
    """For how many seconds it has run."""
    began = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
