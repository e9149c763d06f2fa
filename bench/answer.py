# SPDX-License-Identifier: MIT
"""How long an answer about a deadlock of two threads takes, beside `gdb -batch`, and `--version`:
answer.py [--help]. The commands take turns. Asserts nothing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import alternate, machine, median, spread, table

PROGRAM = Path(__file__).resolve().parent.parent / "tests/wheel/deadlock.c"
FLAGFINDER = str(Path(sys.executable).with_name("flagfinder"))


def took(command: list[str]) -> tuple[float, float]:
    """Milliseconds on the clock, and of processors; those of what it started count, too."""
    begin = time.monotonic()
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)
    _, status, used = os.wait4(process.pid, 0)
    wall = time.monotonic() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command}: exit code {process.returncode}")
    return 1e3 * wall, 1e3 * (used.ru_utime + used.ru_stime)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
    print(f"{machine()}\n")
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/deadlock"
        subprocess.run(["cc", "-g", "-O1", "-pthread", "-o", program, PROGRAM], check=True)
        patient = subprocess.Popen([program])
        try:
            time.sleep(0.5)  # until both wait
            pid = str(patient.pid)
            commands = {
                "why": [FLAGFINDER, "why", pid],
                "why --json": [FLAGFINDER, "why", pid, "--json"],
                "gdb -batch": ["gdb", "-nx", "-batch", "-p", pid, "-ex", "thread apply all bt"],
                "--version": [FLAGFINDER, "--version"],
            }
            found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
            for _, name in alternate(list(commands), runs):
                found[name].append(took(commands[name]))
        finally:
            patient.kill()
            patient.wait()
    rows = []
    for name, each in found.items():
        walls, used = zip(*each, strict=True)
        rows.append([name, str(runs), spread(walls), f"{median(used):.0f}"])
    print(table(["command", "runs", "ms (least-greatest)", "CPU ms"], rows))


if __name__ == "__main__":
    main()
