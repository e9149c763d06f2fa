# SPDX-License-Identifier: MIT
"""What Stalker costs by itself, and what the frida tracer adds: frida_speed.py [--megabytes N]
[--runs N].

gzip natively, under Stalker with a transformation that keeps everything, and recorded at both
levels; runs take turns. Prints a table, asserts nothing. The bar: at most 15 times native with
block ids.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import frida
from measure import alternate, machine, median, spread, table, timed
from workloads import WORKLOADS

from flagfinder.record.stalker import library

_ALONE = "--stalker-alone"
# The same start as the tracer's, so that both follow the same code: the library's gate holds the
# program back.
_AGENT = """
const keep = new CModule(`
  extern int gum_stalker_iterator_next (void * iterator, const void ** insn);
  extern void gum_stalker_iterator_keep (void * iterator);
  void transform (void * iterator, void * output, void * data) {
    const void * insn;
    while (gum_stalker_iterator_next (iterator, &insn)) gum_stalker_iterator_keep (iterator);
  }`);
rpc.exports = { start(tid) { Stalker.follow(tid, { transform: keep.transform }); } };
"""


def main() -> int:
    """Measures, prints Markdown on stdout and progress on stderr."""
    if sys.argv[1:2] == [_ALONE]:
        return _stalker_alone(sys.argv[2:])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--megabytes", type=int, default=170, help="of text for gzip (default 170: 2 s and more)"
    )
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    print(f"{machine()}\n\nFrida {frida.__version__}\n")
    with tempfile.TemporaryDirectory(prefix="ff-bench-") as directory:
        scratch = Path(directory)
        program = WORKLOADS["gzip"].command(options.megabytes, scratch)
        ours = [
            sys.executable,
            "-P",
            "-m",
            "flagfinder",
            "record",
            "-q",
            "--tracer",
            "frida",
            "-o",
            str(scratch / "trace"),
        ]
        commands = {
            "native": program,
            "Stalker alone": [sys.executable, __file__, _ALONE, *program],
            "flagfinder, flow": [*ours, "--level", "flow", "--", *program],
            "flagfinder, values": [*ours, "--level", "values", "--", *program],
        }
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        for turn, name in alternate(list(commands), options.runs):
            sample = timed(commands[name], timeout=1800)
            print(
                f"turn {turn + 1}, {name}: {sample.wall:.2f} s, status {sample.status}",
                file=sys.stderr,
            )
            seconds[name].append(sample.wall)
    plain = median(seconds["native"])
    rows = [
        [name, spread(walls), f"{median(walls) / plain:.2f}"] for name, walls in seconds.items()
    ]
    print(table(["", "seconds (min-max)", "x native"], rows))
    return 0


def _stalker_alone(program: list[str]) -> int:
    """Runs a program under Stalker, from the same place on as the tracer."""
    ours, theirs = socket.socketpair()
    theirs.set_inheritable(True)
    environment = {
        **os.environ,
        "LD_PRELOAD": str(library()),
        "FF_FRIDA_GATE": str(theirs.fileno()),
    }
    with subprocess.Popen(program, env=environment, pass_fds=[theirs.fileno()]) as process:
        theirs.close()
        ours.recv(1)
        script = frida.attach(process.pid).create_script(_AGENT)
        script.load()
        script.exports_sync.start(process.pid)
        ours.send(b"\0")
        status = process.wait()
    # Not through Frida's shutdown.
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
