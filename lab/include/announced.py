# SPDX-License-Identifier: MIT
"""The truth of programs that say it on their own:
``python -m announced FORMAT [SECONDS] [NAME=FD ..]``.

    flag      `FLAG address=0x.. size=N` on stderr; the last one counts (samples, tests/live/cases)
    flags     the last two count: the second is `also`
    thread    the same as flag, but any thread of the process may be the one that waits
    truth     `TRUTH kind pid tid` on stdout: the root (tests/live/why)
    blamed    `BLAMED tid` on stdout: the root
    tid       `pid P tid T` or `pid P spinning_tid T` on stdout: the thread that waits
    names     the roles of threads are their names
    line      a line on stdout: it is ready
    number    a number on the first line of stdout: the root is the process of that number
    roles:ROLE   `ROLE tid` on stdout, once that role is there (tests/events/programs)
    pair      `SERVER CLIENT` on stdout, two processes: the second waits
    busy      the same, but the thread that used most of the processor is the one that waits
    busiest   that thread is the one that waits; its output is not read
    symbol:NAME:SIZE:FILE   the word of a symbol, as nm tells of the file that it runs
    pid       only that it runs; its output is not read

NAME=FD: a descriptor whose number its source fixes.

In: the files stdout and stderr in LAB_RUN, the process LAB_PID. Out: lines of LAB_TRUTH, once the
process has run for SECONDS (default 2), so that it stands. LAB_PID is 0 for one that has ended.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path


def main() -> int:
    """Writes the truth, or says what it lacks."""
    what, *more = sys.argv[1:]
    descriptors = [f"fd {one.replace('=', ' ')}" for one in more if "=" in one]
    seconds = float(next((one for one in more if "=" not in one), "2"))
    pid = _own(int(os.environ["LAB_PID"]))
    lines = _truth(what, pid)
    if lines is None:
        print("it has not announced it", file=sys.stderr)
        return 1
    if pid and _age(pid) < seconds:
        print("it has not run for long", file=sys.stderr)
        return 1
    told = [f"target {pid}"] if pid else []
    with Path(os.environ["LAB_TRUTH"]).open("a", encoding="utf-8") as file:
        file.write("\n".join([*told, *lines, *descriptors, "ready", ""]))
    return 0


def _truth(what: str, pid: int) -> "list[str] | None":
    folder = Path(os.environ["LAB_RUN"])
    if what == "pid":
        return [f"role waiter {pid} {pid}"]
    if what == "names":
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        comms = [("_".join((task / "comm").read_text().split()), task.name) for task in tasks]
        return [f"role {name} {pid} {tid}" for name, tid in comms if name]
    if what == "busiest":
        return [f"role waiter {pid} {_busiest(pid)}"] if pid else None
    if what.startswith("symbol:"):
        _, name, size, image = what.split(":")
        place = _symbol(name, image, pid)
        return [f"role waiter {pid} {_busiest(pid)}", f"word flag {place:#x} {size}"]
    if what in ("flag", "flags", "thread", "busy"):
        text = (folder / "stderr").read_text(errors="replace")
        flags = re.findall(r"^FLAG address=(0x[0-9a-fA-F]+) size=(\d+)$", text, re.M)
        names = ("flag", "also") if what == "flags" else ("flag",)
        if len(flags) < len(names):
            return None
        words = zip(names, flags[-len(names) :], strict=True)
        tid = _busiest(pid) if what == "busy" and pid else pid
        waiter = f"role process {pid}" if what == "thread" else f"role waiter {pid} {tid}"
        return [waiter, *(f"word {name} {place} {size}" for name, (place, size) in words)]
    text = (folder / "stdout").read_text(errors="replace")
    if what == "truth":
        found = re.search(r"^TRUTH \w+ (\d+) (\d+)$", text, re.M)
        if not found:
            return None
        root = [int(one) for one in found.groups()]
        blamed = [f"role root {root[0]} {root[1]}"] if root[0] else []
        return [f"role waiter {pid} {pid}", *blamed]
    if what == "blamed":
        told = re.search(r"^BLAMED (\d+)$", text, re.M)
        return [f"role waiter {pid} {pid}", f"role root {pid} {told[1]}"] if told else None
    if what == "tid":
        told = re.search(r"^pid (\d+) (?:spinning_)?tid (\d+)", text, re.M)
        return [f"target {told[1]}", f"role waiter {told[1]} {told[2]}"] if told else None
    if what == "line":
        return [f"role waiter {pid} {pid}"] if text.endswith("\n") else None
    if what == "pair":
        told = re.match(r"(\d+) (\d+)", text)
        return [f"role server {told[1]}", f"role waiter {told[2]} {told[2]}"] if told else None
    if what == "number":
        number = re.match(r"(\d+)\n", text)
        return [f"role waiter {pid} {pid}", f"role root {number[1]}"] if number else None
    roles = re.findall(r"^(\w+) (\d+)$", text, re.M)
    if what.partition(":")[2] not in dict(roles):
        return None
    return [f"role {name} {_process(int(tid))} {tid}" for name, tid in roles]


def _busiest(pid: int) -> int:
    """The thread that used most of the processor."""
    tasks = list(Path(f"/proc/{pid}/task").iterdir())
    return int(max(tasks, key=lambda task: int((task / "schedstat").read_text().split()[0])).name)


def _symbol(name: str, image: str, pid: int) -> int:
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


def _own(pid: int) -> int:
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


def _age(pid: int) -> float:
    """For how many seconds it has run."""
    began = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
