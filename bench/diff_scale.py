# SPDX-License-Identifier: MIT
"""How time and memory of a diff grow: diff_scale.py [MILLIONS ..] (default 10 30 100 300). Asserts
nothing.

First the engine on synthetic pairs of so many million blocks each (the example ``scale`` of
core/diff, from a checkout). Then the whole command, flag included, on recorded pairs: an
interpreter that computes, then polls an attribute that another thread sets, or, in the spin run,
does not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measure import machine, table
from workloads import PYTHON

import flagfinder

ROOT = Path(__file__).resolve().parent.parent
_PROGRAM = """
import sys, threading, time
class Box: done = False
def total(count):
    sum = 0
    for i in range(count):
        sum += hash((i, sum)) % 7
    return sum
def finish():
    time.sleep(0.2)
    Box.done = sys.argv[2] == "normal"
print(total(int(sys.argv[1])))
threading.Thread(target=finish).start()
while not Box.done:
    time.sleep(0)
"""


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("millions", nargs="*", type=int, default=[10, 30, 100, 300])
    parser.add_argument("--rounds", default="125000,400000,1250000", help="of the recorded programs' computing")
    parser.add_argument("--scratch", type=Path, help="where traces go for the time being")
    options = parser.parse_args()
    print(machine() + "\n\n## Synthetic pairs, the engine alone\n", flush=True)
    scratch = {"TMPDIR": str(options.scratch)} if options.scratch else {}
    subprocess.run(
        ["cargo", "run", "--release", "--locked", "-q", "-p", "flagfinder-diff", "--example", "scale", "--"]
        + [str(size) for size in options.millions],
        cwd=ROOT,
        env={**os.environ, **scratch},
        check=True,
    )
    with tempfile.TemporaryDirectory(prefix="ff-bench-", dir=options.scratch) as directory:
        print("\n## Recorded pairs, the whole command\n", flush=True)
        rows = [_real(int(rounds), Path(directory)) for rounds in options.rounds.split(",")]
        print(table(["M blocks", "MB on disk", "seconds", "CPU s", "peak MiB", "answer"], rows))
    return 0


def _real(rounds: int, directory: Path) -> list[str]:
    """Records a pair and compares it: a row."""
    script = directory / "poll.py"
    script.write_text(_PROGRAM)
    blocks, sizes = {}, {}
    for mode in ("normal", "spin"):
        path = directory / f"{mode}.trace"
        flagfinder.record(
            [PYTHON, "-I", "-S", str(script), str(rounds), mode],
            path,
            flagfinder.RecordOptions(stop_when_spinning=2.0 if mode == "spin" else None),
        )
        blocks[mode] = sum(thread.summary().blocks for thread in flagfinder.open_trace(path).threads)
        sizes[mode] = path.stat().st_size
    began = time.monotonic()
    process = subprocess.Popen(
        [
            sys.executable,
            "-P",
            "-m",
            "flagfinder",
            "diff",
            "--json",
            str(directory / "normal.trace"),
            str(directory / "spin.trace"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    answer: dict[str, Any] = json.loads(text) if text else {"verdict": f"exit {process.returncode}", "flags": []}
    flag = answer["flags"][0]["name"] if answer["flags"] else "none"
    return [
        f"{blocks['normal'] / 1e6:.0f} + {blocks['spin'] / 1e6:.0f}",
        f"{sizes['normal'] / 1e6:.0f} + {sizes['spin'] / 1e6:.0f}",
        f"{seconds:.1f}",
        f"{usage.ru_utime + usage.ru_stime:.1f}",
        f"{usage.ru_maxrss / 1024:.0f}",
        f"{answer['verdict']}: {flag}",
    ]


if __name__ == "__main__":
    sys.exit(main())
