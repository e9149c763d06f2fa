# SPDX-License-Identifier: MIT
"""What `flagfinder guard` costs a command, and how soon it tells of a hang: guard.py [--help].

Cost: each command runs bare, under timeout(1) and under guard, by turns; it measures itself, so the
start of guard is told apart. Hang: a tree of 20 processes hangs; the time from the limit on is
told. Asserts nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from measure import alternate, kill_session, machine, median, spread, table

GUARD = [sys.executable, "-P", "-m", "flagfinder", "guard"]
RUNNERS = {
    "bare": [],
    "timeout": ["timeout", "3600"],
    "guard --after": [*GUARD, "--after", "3600", "--"],
    "guard --idle": [*GUARD, "--idle", "60", "--"],
}
# Runs a command and writes what it took: seconds, its processor time and that of its children.
_INNER = """
import json, resource, subprocess, sys, time
begin = time.monotonic()
subprocess.run(sys.argv[2:], stdout=subprocess.DEVNULL, check=True)
took = time.monotonic() - begin
used = resource.getrusage(resource.RUSAGE_CHILDREN)
open(sys.argv[1], "w").write(json.dumps([took, used.ru_utime + used.ru_stime]))
"""
COMMANDS = {
    "gzip, one process": ["sh", "-c", "head -c 60000000 /dev/urandom | gzip -9 | wc -c"],
    "1000 processes": ["sh", "-c", "i=0; while [ $i -lt 1000 ]; do /bin/true; i=$((i+1)); done"],
    "sleeps 10 s": ["sleep", "10"],
}
# In three generations; `cat` waits for a pipe that stays open. In the second tree six compute,
# in the third twelve.
_TREE = "exec 3<&0; for i in 1 2 3; do ({each}cat <&3 & wait) & done; {more}cat <&3"
TREES = {
    "20 that wait": _TREE.format(
        each="sleep 1000 & sleep 1001 & sleep 1002 & ",
        more="sleep 1003 & sleep 1004 & sleep 1005 & ",
    ),
    "20, 6 of them busy": _TREE.format(
        each="sleep 1000 & (while :; do :; done) & (while :; do :; done) & ",
        more="sleep 1003 & sleep 1004 & sleep 1005 & ",
    ),
    "20, 12 of them busy": _TREE.format(
        each="(while :; do :; done) & " * 3, more="(while :; do :; done) & " * 3
    ),
}
LIMIT = 3.0


@dataclass(frozen=True)
class Run:
    """One run of a command: what it took itself and its processor time, and beyond that the
    runner's, all in s.
    """

    took: float
    used: float
    around: float
    runner_used: float


def measured(runner: str, command: Sequence[str], folder: Path) -> Run:
    """Runs it once."""
    inner = folder / "inner.json"
    words = [*RUNNERS[runner], sys.executable, "-I", "-S", "-c", _INNER, str(inner), *command]
    before = os.times()
    begin = time.monotonic()
    subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    wall = time.monotonic() - begin
    after = os.times()
    took, used = json.loads(inner.read_text())
    all_used = (
        after.children_user + after.children_system - before.children_user - before.children_system
    )
    return Run(took, used, wall - took, all_used - used)


def cost(times: int, folder: Path) -> list[dict[str, str | float]]:
    """A row for each command and runner."""
    rows: list[dict[str, str | float]] = []
    for name, command in COMMANDS.items():
        runs: dict[str, list[Run]] = {runner: [] for runner in RUNNERS}
        for _, runner in alternate(list(RUNNERS), times):
            runs[runner].append(measured(runner, command, folder))
        bare = runs["bare"]
        for runner, own in runs.items():
            ratios = [
                run.used / other.used
                for run, other in zip(own, bare, strict=True)
                if other.used > 0.1
            ]
            rows.append(
                {
                    "command": name,
                    "under": runner,
                    "runs": times,
                    "s": round(median([run.took for run in own]), 3),
                    "CPU s": round(median([run.used for run in own]), 3),
                    "CPU x bare": round(median(ratios), 3) if ratios else "",
                    "x bare, spread": spread(ratios) if ratios else "",
                    "s around it": round(median([run.around for run in own]), 3),
                    "CPU s around it": round(median([run.runner_used for run in own]), 3),
                }
            )
    return rows


def hang(script: str) -> tuple[float, float, int, list[str]]:
    """Seconds from the limit to the story's first line, and to the end of all; processes that a
    chain passes; warnings.
    """
    read, write = os.pipe()  # `cat` waits for it
    words = [*GUARD, "--color", "never", "--after", str(LIMIT), "--", "sh", "-c", script]
    begin = time.monotonic()
    process = subprocess.Popen(
        words, stdin=read, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    os.close(read)
    try:
        assert process.stdout is not None
        with selectors.DefaultSelector() as waits:
            waits.register(process.stdout, selectors.EVENT_READ)
            assert waits.select(timeout=120), "no story"
        told = time.monotonic() - begin - LIMIT
        out, err = process.communicate(timeout=120)
        ended = time.monotonic() - begin - LIMIT
    finally:
        os.close(write)
        kill_session(process.pid)
    warnings = [line for line in err.decode().splitlines() if "not asked" in line]
    return told, ended, len(set(re.findall(rb"process (\d+)", out))), warnings


def hangs(times: int) -> list[dict[str, str | float]]:
    rows: list[dict[str, str | float]] = []
    for name, script in TREES.items():
        found = [hang(script) for _ in range(times)]
        rows.append(
            {
                "tree": name,
                "runs": times,
                "told after s": round(median([told for told, *_ in found]), 2),
                "greatest s": round(max(told for told, *_ in found), 2),
                "ended after s": round(median([ended for _, ended, *_ in found]), 2),
                "cut short": sum(bool(warnings) for *_, warnings in found),
            }
        )
    return rows


def show(rows: list[dict[str, str | float]]) -> None:
    print(
        table(list(rows[0]), [[str(cell) for cell in row.values()] for row in rows]),
        "\n",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5, help="of each command and runner")
    parser.add_argument("--hangs", type=int, default=5, help="of each tree")
    options = parser.parse_args()
    print(machine(), "\n", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        found = {"cost": cost(options.runs, Path(folder)) if options.runs else []}
    if found["cost"]:
        show(found["cost"])
    if options.hangs:
        found["hangs"] = hangs(options.hangs)
        show(found["hangs"])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
