# SPDX-License-Identifier: MIT
"""For how long `flagfinder spin` stops a thread, by copies and in place: spin_copies.py [--help].

Both ways take turns on the same processes. Prints a table, or with --json the rows for results/.
Asserts nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from measure import machine, median, table
from patients import PATIENTS
from spin_safety import SPIN
from workloads import compile_c

# A loop over an attribute that nobody sets.
_PYTHON = "class S: done = False\ns = S()\nwhile not s.done: pass"
WAYS: dict[str, list[str]] = {"copies": [], "in place": ["--in-place"]}


@dataclass
class Looks:
    """What looks in one way came to."""

    seconds: list[float] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    flags: int = 0
    in_copies: int = 0
    threads: int = 0

    def row(self, patient: str, way: str) -> dict[str, object]:
        """One row of results/."""
        return {
            "patient": patient,
            "way": way,
            "looks": len(self.seconds),
            "flags": self.flags,
            "in copies": f"{self.in_copies} of {self.threads}",
            "median ms": round(median(self.pauses), 2) if self.pauses else None,
            "99% ms": round(sorted(self.pauses)[len(self.pauses) * 99 // 100], 2)
            if self.pauses
            else None,
            "median s": round(median(self.seconds), 2),
            "median steps": round(median(self.steps)) if self.steps else None,
        }


def _spinning(*words: str) -> Callable[[Path], AbstractContextManager[int]]:
    @contextlib.contextmanager
    def start(scratch: Path) -> Iterator[int]:
        command = (
            [str(compile_c("spin", scratch)), *words]
            if not words[0].startswith("/")
            else list(words)
        )
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            time.sleep(2)
            yield process.pid
        finally:
            process.kill()
            process.wait()

    return start


def _patient(name: str) -> Callable[[Path], AbstractContextManager[int]]:
    @contextlib.contextmanager
    def start(scratch: Path) -> Iterator[int]:
        with PATIENTS[name](scratch) as patient:
            yield patient.pid

    return start


def _processes(mebibytes: int) -> dict[str, Callable[[Path], AbstractContextManager[int]]]:
    return {
        "C, yields": _spinning("yield"),
        "C, busy": _spinning("busy"),
        **{
            f"C, {count:,} instructions a round": _spinning(str(count // 8))
            for count in (10_000, 100_000, 250_000, 1_000_000)
        },
        "Python, 1 thread": _spinning("/usr/bin/python3", "-c", _PYTHON),
        "C, 500 threads": _spinning("yield", "499"),
        f"C, {mebibytes} MiB": _spinning("yield", "0", str(mebibytes)),
        **{name: _patient(name) for name in PATIENTS},
    }


def _look(pid: int, way: list[str], looks: Looks) -> None:
    begin = time.monotonic()
    ran = subprocess.run([*SPIN, "--json", *way, str(pid)], capture_output=True, text=True)
    looks.seconds.append(time.monotonic() - begin)
    if ran.returncode not in (0, 1):
        sys.exit(ran.stderr)
    threads = [thread for thread in json.loads(ran.stdout)["threads"] if thread["steps"]]
    looks.pauses += [thread["pause_ms"] for thread in threads]
    looks.steps += [thread["steps"] for thread in threads]
    looks.flags += any(thread["flags"] for thread in threads)
    looks.in_copies += sum(thread["via"] == "replica" for thread in threads)
    looks.threads += len(threads)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50, help="looks in each way (default 50)")
    parser.add_argument(
        "--mib", type=int, default=4096, help="memory of the large process (default 4096)"
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="only this process (repeatable)"
    )
    parser.add_argument("--json", action="store_true", help="print the rows as results/ has them")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="ff-bench-") as directory:
        for name, start in _processes(options.mib).items():
            if options.only and name not in options.only:
                continue
            found = {way: Looks() for way in WAYS}
            with start(Path(directory)) as pid:
                for _ in range(options.rounds):
                    for way, words in WAYS.items():
                        _look(pid, words, found[way])
            for way, looks in found.items():
                rows.append(looks.row(name, way))
                print(rows[-1], file=sys.stderr)
    if options.json:
        print(json.dumps(rows, indent=1))
    else:
        print(f"{machine()}\n")
        print(table(list(rows[0]), [[str(cell) for cell in row.values()] for row in rows]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
