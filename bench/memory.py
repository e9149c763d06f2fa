# SPDX-License-Identifier: MIT
"""The most memory that each verb takes: memory.py [--threads 10000] [--processes 10000].

Threads: a process whose threads all wait for one condition variable, and its core (gcore). That
many need room in kernel.threads-max, kernel.pid_max, vm.max_map_count and the cgroup's pids.max;
raise them before, as root. Processes: a recording with stacks of a program that starts so many
short ones. Memory is that of the largest process of the verb. Asserts nothing.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from measure import kill_session, machine, table

TESTS = Path(__file__).resolve().parent.parent / "tests"
FLAGFINDER = [sys.executable, "-P", "-m", "flagfinder"]


def compiled(folder: Path, source: Path) -> Path:
    program = folder / source.stem
    subprocess.run(["gcc", "-O1", "-g", "-pthread", "-o", program, source], check=True)
    return program


def took(folder: Path, *verb: object) -> tuple[float, float, int]:
    """Processor seconds and MiB of a verb, with the processes that it waited for; its exit code."""
    words = [*FLAGFINDER, *map(str, verb)]
    with (folder / "out").open("wb") as out:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, process.returncode


def of_threads(folder: Path, threads: int) -> Iterator[tuple[str, float, float, int]]:
    crowd = [str(compiled(folder, TESTS / "live/programs/crowd.c")), "condition", str(threads)]
    process = subprocess.Popen(crowd, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            sys.exit("The system gives no process so many threads: see --help.")
        pid = process.pid
        yield "spin", *took(folder, "spin", pid)
        yield "why", *took(folder, "why", pid)
        yield "why --stacks", *took(folder, "why", "--stacks", pid)
        few = shlex.join([*crowd[:2], "2"])
        yield "find --native", *took(folder, "find", "--native", "--normal", few, "--pid", pid)
        yield "watch", *took(folder, "watch", pid, "crowd", "on_pipe", "--duration", "1")
        subprocess.run(["gcore", "-o", folder / "core", str(pid)], capture_output=True, check=True)
        yield "core", *took(folder, "core", folder / f"core.{pid}")
        yield "why --core", *took(folder, "why", "--core", folder / f"core.{pid}")
    finally:
        kill_session(process.pid)
        process.wait()
    yield "guard", *took(folder, "guard", "--after", "10", "-o", folder / "hang", "--", *crowd)


def of_processes(folder: Path, processes: int) -> Iterator[tuple[str, float, float, int]]:
    starts = compiled(folder, TESTS / "events/programs/starts.c")
    events, graph = folder / "run.events", folder / "run.graph"
    took(folder, "events", "record", "--stacks", "all", "-o", events, "--", starts, processes)
    yield "graph build", *took(folder, "graph", "build", events, "-o", graph)
    yield "graph query", *took(folder, "graph", "query", graph, "--sort", "wait")
    yield "compare", *took(folder, "compare", events, events)
    yield "diagnose --auto", *took(folder, "diagnose", "--auto", graph)
    yield "report", *took(folder, "report", graph, "-o", folder / "report.html")
    trace = folder / "run.perfetto-trace"
    yield "graph export", *took(folder, "graph", "export", graph, "-o", trace)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=10_000)
    options = parser.parse_args(arguments)
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = [
            [verb, what, f"{cpu:.1f}", f"{peak:.0f}", str(code)]
            for what, found in (
                (f"{options.threads} threads", of_threads(folder, options.threads)),
                (f"{options.processes} processes", of_processes(folder, options.processes)),
            )
            for verb, cpu, peak, code in found
        ]
    print(table(["verb", "of", "CPU s", "MiB", "exit code"], rows))


if __name__ == "__main__":
    main()
