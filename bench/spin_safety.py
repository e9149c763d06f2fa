# SPDX-License-Identifier: MIT
"""What `flagfinder spin` costs its patients: spin_safety.py [--help].

Looks at running programs again and again, and at some it is killed in the middle. Each patient
checks itself: servers whose clients check their answers, programs that check their own results.
What the kernel tells of them is compared before and after, and so is their work beside that of a
twin that is never looked at, in windows of time; --without-throughput leaves it out. rsyslogd can't
have a twin: its work is compared with itself. Where there are two processors, the patients keep to
one and the looks begin on the others. Asserts nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from measure import machine, median, table
from patients import ALONE, PATIENTS, Patient, Start, lacks

SPIN = [sys.executable, "-P", "-m", "flagfinder", "spin"]
WINDOW, WINDOWS = 3.0, 10  # seconds, and how many before and after
MOMENTS = 8  # at which the state is noted, before and after: some of it changes all the time
SETTLES = 60.0  # seconds: on a busy machine a timer's signal may pend at all moments
GROWS = 1024  # KiB of RssShmem
_FIELDS = ("TracerPid", "State", "SigBlk", "SigIgn", "SigCgt", "SigPnd", "ShdPnd")
_STATES = {"R": "goes on", "S": "goes on", "D": "goes on"}


@dataclass
class Cost:
    """What the looks at one patient came to."""

    seconds: list[float] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)
    flags: int = 0
    killed: int = 0
    before: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)
    grown: int = 0
    changed: list[str] = field(default_factory=list)
    well: bool = False

    def row(self, name: str) -> dict[str, object]:
        """As in bench/results/spin.json."""
        row: dict[str, object] = {
            "patient": name,
            "looks": len(self.seconds),
            "killed": self.killed,
            "flags": self.flags,
            "unharmed": "yes" if self.well and not self.changed else "NO",
        }
        if self.seconds:
            row |= {
                "median s": _short(median(self.seconds)),
                "greatest s": _short(max(self.seconds)),
            }
        if self.pauses:
            row |= {
                "ms paused": _short(median(self.pauses)),
                "greatest ms": _short(max(self.pauses)),
            }
        if self.before:
            usual = median(self.before)
            row |= {
                "speed after": round(median(self.after) / usual, 3),
                "its windows": _span(self.after, usual),
                "windows before": _span(self.before, usual),
            }
        row["RssShmem grew, KiB"] = self.grown
        if self.changed:
            row["changed"] = "; ".join(self.changed)
        return row


def _short(value: float) -> float:
    return float(f"{value:.3g}")


def _span(ratios: list[float], usual: float) -> str:
    return f"{min(ratios) / usual:.3f} to {max(ratios) / usual:.3f}"


def _fields(path: Path) -> dict[str, str]:
    lines = (line.split(":\t", 1) for line in path.read_text().splitlines())
    return {line[0]: line[1].strip() for line in lines if len(line) == 2}


def _moment(pid: int) -> Iterator[tuple[str, str]]:
    """What the kernel tells of a process: names and values."""
    tasks = list(Path(f"/proc/{pid}/task").iterdir())
    yield "threads", str(len(tasks))
    yield "descriptors", str(len(os.listdir(f"/proc/{pid}/fd")))  # noqa: PTH208 (only how many)
    yield "mappings", str(len(Path(f"/proc/{pid}/maps").read_bytes().splitlines()))
    for task in tasks:
        told = _fields(task / "status")
        for name in _FIELDS:
            value = told[name]
            if name == "State":
                value = _STATES.get(value[0], value)
            yield f"{name} of thread {task.name}", value


def _state(patient: Patient) -> dict[str, set[str]]:
    """All values that were seen at a few moments."""
    seen: defaultdict[str, set[str]] = defaultdict(set)
    for _ in range(MOMENTS):
        for name, value in _moment(patient.pid):
            seen[name].add(value)
        time.sleep(0.1)
    seen["handlers"].add(patient.handlers().hex())
    return seen


def _changes(before: dict[str, set[str]], after: dict[str, set[str]]) -> list[str]:
    """What has no value any more that it had before."""
    changes = []
    for name in before.keys() | after.keys():
        old, new = before.get(name, set()), after.get(name, set())
        if not old & new:
            changes.append(f"{name}: {', '.join(sorted(old))} became {', '.join(sorted(new))}")
    return sorted(changes)


def _lasting(before: dict[str, set[str]], patient: Patient) -> list[str]:
    """What is different and stays so. What a look left behind does not go away."""
    deadline = time.monotonic() + SETTLES
    while (changes := _changes(before, _state(patient))) and time.monotonic() < deadline:
        pass
    return changes


def _shared(pid: int) -> int:
    return int(_fields(Path(f"/proc/{pid}/status"))["RssShmem"].split()[0])


def _speeds(patient: Patient, twin: Patient | None) -> list[float]:
    """Work of a patient in each window: beside its twin's, or in a second."""
    speeds = []
    for _ in range(WINDOWS):
        begin = time.monotonic()
        before = [each.work() for each in (patient, twin) if each]
        time.sleep(WINDOW)
        works = [each.work() for each in (patient, twin) if each]
        own, *others = [now - then for now, then in zip(works, before, strict=True)]
        speeds.append(own / (others[0] if others else time.monotonic() - begin))
    return speeds


def _apart(pid: int, processors: set[int]) -> None:
    """The patient on one processor, this process and its looks on the others."""
    first, *others = sorted(processors)
    if others:
        for task in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), [first])
        os.sched_setaffinity(0, others)


def _look(patient: Patient, cost: Cost) -> bool:
    begin = time.monotonic()
    ran = subprocess.run([*SPIN, "--json", str(patient.pid)], capture_output=True, text=True)
    cost.seconds.append(time.monotonic() - begin)
    if ran.returncode not in (0, 1):
        print(ran.stderr, file=sys.stderr)
        cost.changed.append(f"a look ended with {ran.returncode}")
        return False
    threads = json.loads(ran.stdout)["threads"]
    cost.pauses += [thread["pause_ms"] for thread in threads if thread["steps"]]
    cost.flags += any(thread["flags"] for thread in threads)
    return True


def _kill(patient: Patient, cost: Cost) -> None:
    words = [*SPIN, *random.choice(([], ["--in-place"])), str(patient.pid)]
    command = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(random.uniform(0.4, 1.0) * median(cost.seconds))
    command.kill()
    command.wait()
    cost.killed += 1


def measured(start: Start, rounds: int, kills: int, has_throughput: bool) -> Cost:
    """Looks so often at one patient, and kills so many further looks."""
    cost = Cost()
    processors = os.sched_getaffinity(0)
    with contextlib.ExitStack() as open_:

        def begun() -> Patient:
            folder = open_.enter_context(tempfile.TemporaryDirectory(prefix="ff-bench-"))
            os.sched_setaffinity(0, processors)  # as what it starts will have it
            patient = open_.enter_context(start(Path(folder)))
            _apart(patient.pid, processors)
            return patient

        patient = begun()
        twin = begun() if has_throughput and start not in ALONE else None
        before, shared = _state(patient), _shared(patient.pid)
        if has_throughput:
            cost.before = _speeds(patient, twin)
        while len(cost.seconds) < rounds and _look(patient, cost):
            pass
        for _ in range(kills):
            _kill(patient, cost)
        time.sleep(3)  # until the helpers have let go
        cost.changed += _lasting(before, patient)
        if has_throughput:
            cost.after = _speeds(patient, twin)
        cost.grown = _shared(patient.pid) - shared
        if cost.grown > GROWS:
            cost.changed.append(f"RssShmem grew by {cost.grown} KiB")
        cost.well = patient.ends_well()
        cost.changed += [] if cost.well else ["what it did: its own check failed"]
    os.sched_setaffinity(0, processors)
    return cost


def main() -> int:
    """Measures, prints Markdown on stdout and progress on stderr."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=200, help="looks at each patient (default 200)"
    )
    parser.add_argument(
        "--kills", type=int, default=50, help="looks that are killed midway (default 50)"
    )
    parser.add_argument(
        "--patients",
        default="",
        metavar="WORDS",
        help=f"only those whose names have one of these, parted by commas: {'; '.join(PATIENTS)}",
    )
    parser.add_argument(
        "--without-throughput",
        action="store_true",
        help="do not compare work after the looks with a twin's",
    )
    parser.add_argument(
        "--json", action="store_true", help="print rows for bench/results/spin.json instead"
    )
    options = parser.parse_args()
    wanted = options.patients.split(",")
    rows = []
    for name, start in PATIENTS.items():
        if not any(word in name for word in wanted):
            continue
        if lack := lacks(start):
            print(f"{name}: left out, {lack}", file=sys.stderr)
            continue
        has_throughput = not options.without_throughput
        rows.append(measured(start, options.rounds, options.kills, has_throughput).row(name))
        print(json.dumps(rows[-1]), file=sys.stderr)
    if options.json:
        print(json.dumps(rows, indent=2))
        return 0
    print(f"{machine()}\n")
    heads = list(dict.fromkeys(head for row in rows for head in row))
    print(table(heads, [[str(row.get(head, "")) for head in heads] for row in rows]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
