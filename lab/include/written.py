# SPDX-License-Identifier: MIT
"""The truth of a program in a virtual machine, which knows no addresses: the words that change
when its other side writes, and neither before nor after. ``python -m written WAKES [SECONDS]``

In: LAB_PID, and how its other side is told to write: `line` on its standard input, `usr1`, or
`file`: the words in LAB_RUN, which it maps. Out: one line `places state ..`. Memory is read, never
written. What else changes at that one moment (a line that was read) is taken over as well, unless a
collector moved objects: then only words that become a 3 count.
"""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import announced

PAGE = 4096
PLACES = 4000
# 0 and then 3 as runtimes write them: plain, shifted, tagged, a double's upper half.
PLAIN = {(0, 3), (0, 6), (1, 7), (2, 14), (15, 63), (0, 0x40080000)}


def memory(pid: int) -> "dict[int, bytes]":
    """The pages that it may write and has touched, by address."""
    found = {}
    folder = Path(f"/proc/{pid}")
    with (folder / "mem").open("rb") as file, (folder / "pagemap").open("rb") as pages:
        for line in (folder / "maps").read_text().splitlines():
            place, rights, *_ = line.split()
            first, end = (int(one, 16) for one in place.split("-"))
            if not rights.startswith("rw"):
                continue
            pages.seek(first // PAGE * 8)
            for entry in memoryview(pages.read((end - first) // PAGE * 8)).cast("Q"):
                if entry >> 63:
                    file.seek(first)
                    with contextlib.suppress(OSError):
                        found[first] = file.read(PAGE)
                first += PAGE
    return found


def changed(before: "dict[int, bytes]", after: "dict[int, bytes]") -> "set[int]":
    """The addresses of words of four bytes that differ."""
    found = set()
    for first, old in before.items():
        new = after.get(first, old)
        if old != new:
            words = range(0, PAGE, 4)
            found |= {first + at for at in words if old[at : at + 4] != new[at : at + 4]}
    return found


def word(pages: "dict[int, bytes]", address: int) -> int:
    """Four bytes of them."""
    at = address % PAGE
    return int.from_bytes(pages[address - at][at : at + 4], "little")


def wake(pid: int, how: str) -> None:
    """Has its other side write 3."""
    if how == "usr1":
        os.kill(pid, signal.SIGUSR1)
    elif how == "file":
        with (Path(os.environ["LAB_RUN"]) / "words").open("r+b") as words:
            words.seek(20)
            words.write(b"\3")
    else:
        with Path(f"/proc/{pid}/fd/0").open("wb") as stdin:
            stdin.write(b"\n")


def main() -> int:
    """Writes the truth, or says what it lacks."""
    pid = announced.own(int(os.environ["LAB_PID"]))
    if announced.age(pid) < float((sys.argv[2:] or ["3"])[0]):
        return 1
    first = memory(pid)
    time.sleep(0.3)
    second = memory(pid)
    wake(pid, sys.argv[1])
    time.sleep(0.7)
    third = memory(pid)
    places = changed(second, third) - changed(first, second)
    for _ in range(3):
        time.sleep(0.2)
        places -= changed(third, memory(pid))
    if len(places) >= PLACES:  # a collector moved objects meanwhile
        places = {at for at in places if (word(second, at), word(third, at)) in PLAIN}
    if not 0 < len(places) < PLACES:
        print(f"{len(places)} words changed at once", file=sys.stderr)
        return 1
    listed = " ".join(f"{place:#x}" for place in sorted(places))
    with Path(os.environ["LAB_TRUTH"]).open("a", encoding="utf-8") as file:
        waiter = f"role waiter {pid} {announced.busiest(pid)}"
        file.write(f"{waiter}\nplaces state {pid} 4 {listed}\nready\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
