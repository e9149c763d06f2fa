# SPDX-License-Identifier: MIT
"""How often `why PID` names the root of a planted hang, or an innocent, and how long it takes.

The hangs are those of tests/live/why. The pause is the longest of any thread in a look of `spin` at
the same process, which is how `why` looks. Prints a table, and with --json the rows for
bench/results/why-hangs.json; asserts nothing. Needs root, as do some of the hangs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measure import machine, median, table

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "live")]

from planted import built, planted  # noqa: E402
from test_why import SCENARIOS  # noqa: E402

FLAGFINDER = [sys.executable, "-P", "-m", "flagfinder"]


def asked(verb: str, pid: int) -> Any:
    ran = subprocess.run([*FLAGFINDER, verb, "--json", str(pid)], check=False, capture_output=True)
    return json.loads(ran.stdout)


def row(name: str, program: Path, turns: int, scratch: Path) -> dict[str, Any]:
    """What came of all turns of one hang. An innocent is a root that was named, and is not the
    planted one."""
    right, innocents, seconds, pauses = 0, 0, [], [0.0]
    for turn in range(turns):
        folder = scratch / f"{name}-{turn}"
        folder.mkdir()
        with planted(program, name, folder) as (process, truth):
            begin = time.monotonic()
            report = asked("why", process.pid)
            seconds.append(time.monotonic() - begin)
            pauses += [thread["pause_ms"] for thread in asked("spin", process.pid)["threads"]]
        root = report["root"]
        is_right = root["kind"] == truth.kind
        is_right &= truth.pid in (None, root["pid"]) and truth.tid in (None, root["tid"])
        right += is_right
        innocents += not is_right and root["kind"] != "unknown"
        if not is_right:
            print(name, truth, *report["story"], sep="\n  ", file=sys.stderr, flush=True)
    return {
        "hang": name,
        "right": right,
        "of": turns,
        "innocents": innocents,
        "median s": round(median(seconds), 2),
        "most s": round(max(seconds), 2),
        "pause ms": max(pauses),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=5, help="of each hang")
    parser.add_argument("--only", nargs="*", help="these hangs")
    parser.add_argument("--json", action="store_true", help="print the rows as results/ has them")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="flagfinder-why-") as name:
        folder = Path(name)
        program = built(folder)
        names = options.only or list(SCENARIOS)
        rows = [row(hang, program, options.turns, folder) for hang in names]
    if options.json:
        print(",\n".join(json.dumps(one) for one in rows))
        return
    print(machine(), "\n")
    print(table(list(rows[0]), [[str(cell) for cell in one.values()] for one in rows]))


if __name__ == "__main__":
    main()
