# SPDX-License-Identifier: MIT
"""How time and memory of a diff grow: diff_scale.py [MILLIONS ..] (default 10 30 100 300). Asserts
nothing.

First the engine on synthetic pairs of so many million blocks each (the example ``scale`` of
core/diff, from a checkout). Then the whole command, flag included, on recorded pairs: a program
computes, then polls a word that another thread sets, or, in the spin run, does not. The programs
are an interpreter of several sizes, and, sized to about 100 million blocks each, vector code and
many threads: OpenBLAS, numpy, ffmpeg's filters, a JVM, 60 threads of a matrix product. What is not
installed is left out: libopenblas-dev, python3-numpy, libavfilter-dev, a JDK.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measure import machine, table
from workloads import PYTHON

import flagfinder

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
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


_NUMPY = """
import sys, threading, time
import numpy
class Box: done = False
def finish():
    time.sleep(0.2)
    Box.done = sys.argv[2] == "normal"
a = numpy.random.default_rng(1).random((200, 200))
for _ in range(int(sys.argv[1])):
    b = numpy.sort(a, axis=1)
    c = numpy.exp(a @ b / 1000).sum() + numpy.cumsum(b.ravel())[-1]
print(c)
threading.Thread(target=finish).start()
while not Box.done:
    time.sleep(0)
"""
_JAVA = """
public class Poll {
    static volatile boolean done;
    public static void main(String[] a) throws Exception {
        var counts = new java.util.HashMap<Integer, Integer>();
        for (int i = 0; i < Integer.parseInt(a[0]); i++)
            counts.merge(i * 31 % 5003, i, Integer::sum);
        System.out.println(counts.size());
        new Thread(() -> {
            try { Thread.sleep(200); } catch (InterruptedException e) {}
            done = a[1].equals("normal");
        }).start();
        while (!done) Thread.sleep(0);
    }
}
"""


# The command without its last argument, of so many times the usual work; `None`: not installed.
Command = Callable[[Path, int], "list[str] | None"]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("millions", nargs="*", type=int, default=[10, 30, 100, 300])
    parser.add_argument(
        "--rounds", default="125000,400000,1250000", help="of the interpreter's computing"
    )
    parser.add_argument(
        "--programs", default=",".join(PROGRAMS), help="others to record (default: all)"
    )
    parser.add_argument("--times", type=int, default=1, help="more work of those (default 1)")
    parser.add_argument("--scratch", type=Path, help="where traces go for the time being")
    options = parser.parse_args()
    print(machine() + "\n\n## Synthetic pairs, the engine alone\n", flush=True)
    scratch = {"TMPDIR": str(options.scratch)} if options.scratch else {}
    if options.millions != [0]:
        subprocess.run(
            [
                "cargo",
                "run",
                "--release",
                "--locked",
                "-q",
                "-p",
                "flagfinder-diff",
                "--example",
                "scale",
                "--",
            ]
            + [str(size) for size in options.millions],
            cwd=ROOT,
            env={**os.environ, **scratch},
            check=True,
        )
    with tempfile.TemporaryDirectory(prefix="ff-bench-", dir=options.scratch) as directory:
        print("\n## Recorded pairs, the whole command\n", flush=True)
        folder = Path(directory)
        script = folder / "poll.py"
        script.write_text(_PROGRAM)
        rows = []
        for rounds in filter(None, options.rounds.split(",")):
            rows.append(_pair("interpreter", [PYTHON, "-I", "-S", str(script), rounds], folder))
        for name in filter(None, options.programs.split(",")):
            command = PROGRAMS[name](folder, options.times)
            rows.append(
                _pair(name, command, folder) if command else [name, "not installed", *[""] * 5]
            )
        print(
            table(
                ["program", "M blocks", "MB on disk", "seconds", "CPU s", "peak MiB", "answer"],
                rows,
            )
        )
    return 0


def _numpy(folder: Path, times: int) -> list[str] | None:
    script = folder / "numeric.py"
    script.write_text(_NUMPY)
    has_numpy = (
        subprocess.run([PYTHON, "-c", "import numpy"], stderr=subprocess.DEVNULL).returncode == 0
    )
    return [PYTHON, str(script), str(35 * times)] if has_numpy else None


def _java(folder: Path, times: int) -> list[str] | None:
    if not shutil.which("javac"):
        return None
    source = folder / "Poll.java"
    source.write_text(_JAVA)
    subprocess.run(["javac", str(source)], check=True)
    return ["java", "-cp", str(folder), "Poll", str(300_000 * times)]


def _compiled(kind: str, rounds: int, threads: int) -> Command:
    """``computes.c`` with one kind of work."""

    def command(folder: Path, times: int) -> list[str] | None:
        libraries = {"blas": ["-lopenblas"], "ffmpeg": ["-lavfilter", "-lavutil"]}.get(kind, [])
        program = folder / kind
        compiler = [
            "cc",
            "-O3",
            "-mavx2",
            "-mfma",
            "-pthread",
            f"-DWORK_{kind.upper()}",
            str(HERE / "computes.c"),
        ]
        built = subprocess.run(
            [*compiler, "-o", str(program), *libraries], stderr=subprocess.DEVNULL
        )
        words = [str(program), str(rounds * times), str(threads)]
        return words if built.returncode == 0 else None

    return command


# By name: the command without its last argument, normal or spin; None: something is missing.
PROGRAMS: dict[str, Command] = {
    "matrix": _compiled("matrix", 2000, 1),
    "threads": _compiled("matrix", 33, 60),
    "blas": _compiled("blas", 240, 1),
    "ffmpeg": _compiled("ffmpeg", 300, 1),
    "numpy": _numpy,
    "java": _java,
}


def _pair(name: str, command: list[str], folder: Path) -> list[str]:
    """Records a pair and compares it: a row."""
    blocks, sizes = {}, {}
    for mode in ("normal", "spin"):
        path = folder / f"{mode}.trace"
        flagfinder.record(
            [*command, mode],
            path,
            flagfinder.RecordOptions(stop_when_spinning=2.0 if mode == "spin" else None),
        )
        blocks[mode] = sum(
            thread.summary().blocks for thread in flagfinder.open_trace(path).threads
        )
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
            str(folder / "normal.trace"),
            str(folder / "spin.trace"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    answer: dict[str, Any] = (
        json.loads(text) if text else {"verdict": f"exit {process.returncode}", "flags": []}
    )
    flag = answer["flags"][0]["name"] if answer["flags"] else "none"
    row = [
        name,
        f"{blocks['normal'] / 1e6:.0f} + {blocks['spin'] / 1e6:.0f}",
        f"{sizes['normal'] / 1e6:.0f} + {sizes['spin'] / 1e6:.0f}",
        f"{seconds:.1f}",
        f"{usage.ru_utime + usage.ru_stime:.1f}",
        f"{usage.ru_maxrss / 1024:.0f}",
        f"{answer['verdict']}: {flag}",
    ]
    print(" ".join(row), file=sys.stderr, flush=True)
    return row


if __name__ == "__main__":
    sys.exit(main())
