# SPDX-License-Identifier: MIT
"""What recording events costs a program, beside perf, trace-cmd and bpftrace, and how fast
recordings are read.

Every recorder takes the switches and wakes of the whole machine while a client loads a server
(events_load.py); flagfinder also with the calls of the server. Recorders take turns. Prints tables,
asserts nothing. Needs root, on a machine that does nothing else. The peers that are installed are
used: apt install redis-server postgresql linux-perf trace-cmd bpftrace.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import events_load
from events_load import Load
from measure import alternate, first_line, kill_session, machine, median, spread, table, timed

ROOT = Path(__file__).resolve().parent.parent
FLAGFINDER = [sys.executable, "-P", "-m", "flagfinder"]
_SETTLES = 3.0  # seconds in which every recorder that has made its file has begun
_TIMEOUT = 600.0
_BPFTRACE = """
tracepoint:sched:sched_switch
{ printf("%llu %d s %d %d %d\\n", nsecs, cpu, args->prev_pid, args->next_pid, args->prev_state); }
tracepoint:sched:sched_waking { printf("%llu %d w %d %d\\n", nsecs, cpu, pid, args->pid); }
"""


@dataclass(frozen=True)
class Recorder:
    """``command``: its command line, for a load and a file to write. ``read``: what reads that file
    as text.
    """

    name: str
    program: str
    command: Callable[[Load, Path], list[str]]
    read: Callable[[Path], list[str]] | None = None


@dataclass
class Figures:
    """Of one recorder on one load: seconds of the client; of CPU of the server, which say more on a
    busy machine; of the last recording its bytes, and what it told.
    """

    seconds: list[float] = field(default_factory=list)
    server: list[float] = field(default_factory=list)
    bytes: int = 0
    told: dict[str, object] = field(default_factory=dict)
    reading: str = ""


def _ours(*options: str) -> Callable[[Load, Path], list[str]]:
    def command(load: Load, path: Path) -> list[str]:
        # Options are about the calls and stacks of a process that was named.
        target = ["--pid", str(load.pid), *options] if load.pid else []
        words = ["events", "record", "--json", "-q", "--all", "--buffer", "128M"]
        return [*FLAGFINDER, *words, *target, "-o", str(path)]

    return command


_SCHED = ("-e", "sched:sched_switch", "-e", "sched:sched_waking")
RECORDERS = [
    Recorder("flagfinder, lazy", sys.executable, _ours(), None),
    Recorder(
        "flagfinder, all calls of the server", sys.executable, _ours("--syscalls", "target"), None
    ),
    Recorder(
        "perf record",
        "perf",
        lambda _, path: ["perf", "record", "-q", "-a", *_SCHED, "-o", str(path)],
        lambda path: ["perf", "script", "-i", str(path)],
    ),
    Recorder(
        "trace-cmd",
        "trace-cmd",
        lambda _, path: ["trace-cmd", "record", "-q", "-d", *_SCHED, "-o", str(path)],
        lambda path: ["trace-cmd", "report", "-i", str(path)],
    ),
    Recorder(
        "bpftrace", "bpftrace", lambda _, path: ["bpftrace", "-o", str(path), "-e", _BPFTRACE]
    ),
]


def cpu_of(pid: int | None) -> float:
    """Seconds of CPU that a process has had, 0 without one."""
    if not pid:
        return 0.0
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def run_client(load: Load, figures: Figures) -> None:
    before = cpu_of(load.pid)
    figures.seconds.append(timed(load.command, timeout=_TIMEOUT).wall)
    figures.server.append(cpu_of(load.pid) - before)


def recorded(recorder: Recorder, load: Load, scratch: Path, figures: Figures) -> None:
    """One run of the client beside the recorder."""
    path = scratch / "recording"
    log = scratch / "log"
    with log.open("w+") as out:
        process = subprocess.Popen(
            recorder.command(load, path),
            stdout=out,
            stderr=subprocess.DEVNULL,
            cwd=scratch,
            start_new_session=True,
        )
        try:
            # trace-cmd has a file for each CPU first.
            deadline = time.monotonic() + _TIMEOUT
            while (
                process.poll() is None
                and not list(scratch.glob("recording*"))
                and time.monotonic() < deadline
            ):
                time.sleep(0.1)
            time.sleep(_SETTLES)
            if process.poll() is not None:
                figures.told = {"lost": f"ended at once, with {process.returncode}"}
                return
            run_client(load, figures)
            process.send_signal(signal.SIGINT)
            process.wait(timeout=_TIMEOUT)
        finally:
            kill_session(process.pid)
    figures.bytes = path.stat().st_size
    if recorder.program == sys.executable:
        figures.told = json.loads(log.read_text())
    if recorder.read:
        began = time.monotonic()
        reader = subprocess.Popen(
            recorder.read(path), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=scratch
        )
        assert reader.stdout is not None
        lines = sum(1 for _ in reader.stdout)
        reader.wait(timeout=60)
        figures.told = {"events": lines}
        figures.reading = f"{lines / (time.monotonic() - began) / 1e6:.2f}"
    elif recorder.program == "bpftrace":
        with path.open("rb") as text:
            figures.told = {"events": sum(1 for _ in text)}
    for left in scratch.glob("recording*"):
        left.unlink()


def beside_peers(load: Load, recorders: list[Recorder], runs: int, scratch: Path) -> str:
    present = [recorder for recorder in recorders if shutil.which(recorder.program)]
    by_name = {recorder.name: recorder for recorder in present}
    figures = {name: Figures() for name in ["nothing", *by_name]}
    timed(load.command, timeout=_TIMEOUT)  # a first run is slower
    for turn, name in alternate(list(figures), runs):
        print(f"{load.name}: {name}, run {turn + 1} of {runs}", file=sys.stderr)
        if name == "nothing":
            run_client(load, figures[name])
        else:
            recorded(by_name[name], load, scratch, figures[name])
    plain, alone = median(figures["nothing"].seconds), median(figures["nothing"].server)
    rows = []
    for name, of in figures.items():
        if not of.seconds:
            rows.append([name, *[""] * 7, str(of.told.get("lost")), ""])
            continue
        events = int(str(of.told.get("events", 0)))
        raw = int(str(of.told.get("raw_bytes", 0)))
        lost = of.told.get("lost", "")
        rows.append(
            [
                name,
                spread(of.seconds),
                f"{median(of.seconds) / plain:.3f}",
                f"{median(of.server):.2f}" if alone else "",
                f"{median(of.server) / alone:.3f}" if alone else "",
                f"{events:,}" if events else "",
                f"{raw / events:.1f}" if raw else "",
                f"{of.bytes / events:.2f}" if events else "",
                str(lost["total"] if isinstance(lost, dict) else lost),
                of.reading,
            ]
        )
    header = [
        "recorder",
        "s",
        "x nothing",
        "server CPU s",
        "x alone",
        "events",
        "B/event raw",
        "on disk",
        "lost",
        "read M events/s",
    ]
    return f"### {load.name}\n{table(header, rows)}\n"


def graph_speed(millions: float, scratch: Path) -> str:
    """Loading, building and asking a made-up recording, by graph/graph/examples/graph_speed.rs."""
    build = [
        "cargo",
        "build",
        "--release",
        "-q",
        "-p",
        "flagfinder-graph",
        "--example",
        "graph_speed",
    ]
    subprocess.run(build, cwd=ROOT, check=True)
    command = [*build[:1], "run", *build[2:], "--", str(millions), str(scratch / "made-up.events")]
    ran = subprocess.run(
        command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=3600
    )
    rows = [line.split() for line in ran.stdout.splitlines()]
    return f"### Graph of {millions:g} million events\n{table(['what', 'figure'], rows)}\n"


def main() -> None:
    """Measures, prints Markdown on stdout and progress on stderr."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--runs", type=int, default=5, help="of each recorder on each load (default 5)"
    )
    parser.add_argument(
        "--loads", default="redis,pgbench,pipe", help="of redis,pgbench,pipe (default all)"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="of the loads; at 1 each runs for some seconds"
    )
    parser.add_argument(
        "--recorder",
        action="append",
        metavar="PART",
        help="only those with PART in their names; several (default all)",
    )
    parser.add_argument(
        "--millions", type=float, default=19, help="of events for the graph; 0: leave it out"
    )
    options = parser.parse_args()
    chosen = [
        one for one in RECORDERS if any(part in one.name for part in options.recorder or [""])
    ]
    print(f"{machine()}\n")
    for peer in (["perf", "--version"], ["trace-cmd", "--version"], ["bpftrace", "--version"]):
        print(f"- {peer[0]}: {first_line(*peer)}")
    print()
    makers = {
        "redis": (events_load.redis, 500_000),
        "pgbench": (events_load.pgbench, 20_000),
        "pipe": (events_load.pipe, 500_000),
    }
    with tempfile.TemporaryDirectory(prefix="ff-bench-") as directory:
        scratch = Path(directory)
        scratch.chmod(0o755)  # PostgreSQL's user must get through
        for name in options.loads.split(","):
            if name not in events_load.available():
                print(f"### {name}\nnot installed\n")
                continue
            make, size = makers[name]
            with ExitStack() as stack:
                load = stack.enter_context(make(scratch, int(size * options.scale)))
                print(beside_peers(load, chosen, options.runs, scratch), flush=True)
        if options.millions:
            print(graph_speed(options.millions, scratch))


if __name__ == "__main__":
    main()
