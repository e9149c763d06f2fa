# SPDX-License-Identifier: MIT
"""How often `diagnose --auto` names the culprit of a hang of known cause, and how often an innocent
thread.

The scenes are those of tests/events/scenes.py. Prints a table, and with --json the rows of
bench/results/hang-scenes.json; asserts nothing. Needs root. A busy machine is no excuse here.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from measure import machine, table

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "events")]

from event_recorder import Recorder  # noqa: E402
from scenes import SCENES, Scene  # noqa: E402

FLAGFINDER = [sys.executable, "-P", "-m", "flagfinder"]


def diagnosis(events: Path) -> dict[str, Any] | None:
    """By rule; None: no hang was found."""
    graph = events.with_suffix(".graph")
    subprocess.run(
        [*FLAGFINDER, "graph", "build", events, "-o", graph], check=True, capture_output=True
    )
    ran = subprocess.run(
        [*FLAGFINDER, "diagnose", graph, "--auto", "--json"], check=False, capture_output=True
    )
    found: dict[str, Any] = json.loads(ran.stdout)
    return found if found["culprits"] else None


def row(scene: Scene, mode: str, turns: int, recorder: Recorder, scratch: Path) -> dict[str, Any]:
    """What came of all turns of one scene."""
    right, innocents = 0, []
    for turn in range(turns):
        recorded = scene.record(recorder, mode, scratch / f"{scene.name}-{mode}-{turn}")
        found = diagnosis(recorded.path)
        if found is None:
            print(f"{scene.name}, {mode}: no hang", file=sys.stderr)
            subprocess.run(
                [*FLAGFINDER, "events", "info", recorded.path], check=False, stdout=sys.stderr
            )
            continue
        innocents += scene.innocents(recorded, found)
        is_right = scene.told(found) == scene.truth(recorded) and found["dur"] >= scene.least
        right += is_right
        if not is_right:
            print(
                f"{scene.name}, {mode}: {scene.told(found)}, not {scene.truth(recorded)}",
                file=sys.stderr,
            )
        recorded.path.unlink()
    if innocents:
        print(f"{scene.name}, {mode}: innocent are {innocents}", file=sys.stderr)
    print(f"{scene.name}, {mode}: right in {right} of {turns}", file=sys.stderr)
    return {
        "scene": scene.name,
        "calls": mode,
        "right": right,
        "of": turns,
        "innocents": len(innocents),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=5, help="of each scene (default 5)")
    parser.add_argument(
        "--only", default="", metavar="PART", help="scenes with PART in their names"
    )
    parser.add_argument(
        "--json", action="store_true", help="print rows for bench/results/hang-scenes.json instead"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ff-bench-") as directory:
        recorder = Recorder(Path(directory))
        chosen = [
            (scene, mode) for scene in SCENES if options.only in scene.name for mode in scene.modes
        ]
        rows = [
            row(scene, mode, options.turns, recorder, Path(directory)) for scene, mode in chosen
        ]
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    columns = ["scene", "calls", "right", "of", "innocents"]
    print(f"{machine()}\n")
    print(table(columns, [[str(one[name]) for name in columns] for one in rows]))


if __name__ == "__main__":
    main()
