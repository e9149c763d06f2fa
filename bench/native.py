# SPDX-License-Identifier: MIT
"""What `find --native` costs the good run: native.py [--help].

A program runs bare and watched, by turns, and measures itself: the time on the clock and the
processor time of the thread that computes. Asserts nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from measure import alternate, machine, median, spread, table

from flagfinder.chain.good_run import run_well
from flagfinder.live.spin import spin

SOURCE = Path(__file__).with_name("native.c")
KINDS = ("global", "heap", "hot")
_SETTLES = 1.0


def polled(program: Path, kind: str) -> list[Any]:
    """The flags of a bad run."""
    bad = subprocess.Popen([program, "/dev/null", kind, "bad"])
    try:
        time.sleep(_SETTLES)
        flags = spin(bad.pid).raw["threads"][0]["flags"]
    finally:
        bad.kill()
        bad.wait()
    assert flags, "the bad run polls nothing"
    return flags[:3]


def once(
    program: Path, kind: str, flags: list[Any] | None, folder: Path
) -> tuple[float, float, int]:
    """Seconds on the clock, of the worker's processor time, and writes that were seen."""
    file = folder / "times"
    command = [str(program), str(file), kind]
    writes = 0
    if flags is None:
        subprocess.run(command, check=True)
    else:
        run = run_well(command, flags, program.name, (), lambda _text: None)
        writes = sum(one.count for word in run.words[0].values() for one in word.written())
    wall, used = file.read_text().split()
    return float(wall), float(used), writes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5, help="of each kind, bare and watched")
    options = parser.parse_args()
    print(machine(), "\n", flush=True)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = folder / "native"
        subprocess.run(["cc", "-O1", "-g", "-pthread", "-o", program, SOURCE], check=True)
        for kind in KINDS:
            flags = polled(program, kind)
            runs: dict[str, list[tuple[float, float, int]]] = {"bare": [], "watched": []}
            for _, how in alternate(list(runs), options.runs):
                runs[how].append(once(program, kind, flags if how == "watched" else None, folder))
            pairs = list(zip(runs["bare"], runs["watched"], strict=True))
            rows.append(
                {
                    "polls": kind,
                    "runs": options.runs,
                    "bare s": round(median([bare[0] for bare, _ in pairs]), 3),
                    "x bare": spread([watched[0] / bare[0] for bare, watched in pairs]),
                    "CPU x bare": round(
                        median([watched[1] / bare[1] for bare, watched in pairs]), 3
                    ),
                    "writes seen": min(watched[2] for _, watched in pairs),
                }
            )
    print(
        table(list(rows[0]), [[str(cell) for cell in row.values()] for row in rows]),
        "\n",
        flush=True,
    )
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
