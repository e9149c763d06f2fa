# SPDX-License-Identifier: MIT
"""How fast `record --tracer lldb` steps, beside a loop that does nothing but step.

Runs inside lldb, on a program that is started for it, with flagfinder installed in PACKAGES (its
site-packages):

    cc -g -O1 -pthread -o spin bench/spin.c
    lldb --batch -o "command script import bench/lldb_speed.py" -o "script
    lldb_speed.main('PACKAGES', 'spin', 'busy')"

The thread with most processor time is stepped, by both in turns. Prints the steps a second of each
and their ratio, by the clock, and by the processor time of lldb and its server, which other
programs disturb less.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import lldb

ROUNDS, STEPS = 10, 1000
RUNNING = 0.5  # seconds until the program does what it is for


def main(packages: str, *command: str) -> None:
    sys.path[:0] = [packages, str(Path(__file__).resolve().parent.parent / "lldb_scripts")]
    import ff_recorder  # noqa: PLC0415
    import ff_start  # noqa: PLC0415
    import ff_step  # noqa: PLC0415

    from flagfinder.record.stepping import Sink, StepOptions  # noqa: PLC0415

    program = subprocess.Popen(command)
    try:
        time.sleep(RUNNING)
        process = ff_recorder.attach(lldb.debugger, program.pid)
        thread = ff_start.busiest(process)
        sink = Sink(command, StepOptions())
        sink.begin(ff_start.facts(process, thread))
        bare, recording = [0.0, 0.0], [0.0, 0.0]
        for _ in range(ROUNDS):
            began = _now(program.pid)
            for _ in range(STEPS):
                thread.StepInstruction(False)
            between = _now(program.pid)
            ff_step.Stepper(process, thread, sink, lambda: False).run(STEPS)
            end = _now(program.pid)
            for kind in range(2):
                bare[kind] += between[kind] - began[kind]
                recording[kind] += end[kind] - between[kind]
    finally:
        program.kill()
    steps = ROUNDS * STEPS
    for kind, name in enumerate(("clock", "processor")):
        told = {
            "bare": steps / bare[kind],
            "recording": steps / recording[kind],
            "ratio": bare[kind] / recording[kind],
        }
        print(json.dumps({name: {key: round(value, 2) for key, value in told.items()}}))


def _now(pid: int) -> tuple[float, float]:
    """The clock; processor seconds of this process and the server that traces ``pid``."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    server = next(line.split()[1] for line in status.splitlines() if line.startswith("TracerPid:"))
    fields = Path(f"/proc/{server}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return time.monotonic(), time.process_time() + ticks / os.sysconf("SC_CLK_TCK")
