# SPDX-License-Identifier: MIT
"""Every verb of the command line, and a command line of each that does its work on small files."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from perf_writer import PerfData

from flagfinder.cli.command import build_parser
from flagfinder.cli.common import Parser

WAITER, WAKER, READ = 100, 200, 0


@dataclass(frozen=True)
class Files:
    """What the command lines work on; ``pid`` is a process of ``program`` that spins."""

    program: Path
    normal: Path
    spin: Path
    tenet: Path
    perf: Path
    events: Path
    graph: Path
    tables: Path
    core: Path
    folder: Path
    pid: int

    def new(self, name: str) -> str:
        """A path of its own in ``folder``, where nothing is yet."""
        return str(Path(tempfile.mkdtemp(dir=self.folder)) / name)


def leaves(
    parser: argparse.ArgumentParser | None = None, name: str = ""
) -> Iterator[tuple[str, Parser]]:
    """(``events record``, its parser) and so on: what is no list of further verbs."""
    parser = parser or build_parser()
    lists = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for action in lists:
        for word, below in action.choices.items():
            yield from leaves(below, f"{name} {word}".strip())
    if not lists:
        assert isinstance(parser, Parser)
        yield name, parser


# An agent asks `mcp`, in its own protocol.
VERBS = [name for name, _ in leaves() if name != "mcp"]


def write_perf(path: Path) -> None:
    """A recording of perf: one thread waits, another wakes it."""
    perf = PerfData()
    perf.comm(0, 0, WAITER, "waiter")
    perf.comm(0, 0, WAKER, "waker")
    perf.sample("sys_enter", 1000, 0, WAITER, id=READ, args=3)
    perf.sample("sched_switch", 1100, 0, WAITER, prev_pid=WAITER, prev_state=1, next_pid=0)
    perf.sample("sched_waking", 4000, 1, WAKER, pid=WAITER, prio=120)
    perf.sample("sched_switch", 4100, 0, 0, prev_pid=0, next_pid=WAITER)
    perf.sample("sys_exit", 4200, 0, WAITER, id=READ, ret=8)
    perf.write(path)


def command_line(verb: str, files: Files) -> list[str]:
    """The words of ``verb`` and what it needs; the program to run, where there is one, comes last,
    behind ``--``.
    """
    program, pid, graph = str(files.program), str(files.pid), str(files.graph)
    words: dict[str, list[object]] = {
        "record": ["-o", files.new("x.trace"), "--", program, "normal"],
        "trace info": [files.spin],
        "trace check": [files.spin],
        "trace dump": [files.spin, "--limit", "5"],
        "trace export": [files.spin, "-o", files.new("x.drcov")],
        "trace import": [files.tenet, "--image", program, "-o", files.new("x.trace")],
        "diff": [files.normal, files.spin],
        "discover": [files.normal],
        "registers": [files.spin, "--before-divergence", files.normal],
        "find": ["-d", files.new(""), "--normal", f"{program} normal", "--spin", f"{program} spin"],
        "spin": [pid, "--budget", "0.1"],
        "why": [pid, "--budget", "0.1"],
        "guard": ["--after", "60", "--", program, "normal"],
        "core": [files.core],
        "watch": [pid, files.program.name, "ready", "--duration", "0.1"],
        "poke": [pid, "--address", "0x10", "--size", "4", "--value", "1", "--yes"],
        "events record": ["-o", files.new("x.events"), "--", program, "normal"],
        "events top": ["--pid", str(files.pid), "--duration", "0.1"],
        "events import": [files.perf, "-o", files.new("x.events")],
        "events info": [files.events],
        "events check": [files.events],
        "events dump": [files.events],
        "mark": ["here", "--recorder", str(os.getpid())],
        "graph build": [files.events, "-o", files.new("x.graph")],
        "graph info": [graph],
        "graph query": [graph],
        "graph bottleneck": [graph],
        "graph export": [graph, "-o", files.new("x.graphml")],
        "diagnose": [graph, "--auto"],
        "report": [graph, "-o", files.new("x.html")],
        "critical-path": [graph, "--thread", str(WAITER)],
        "compare": [files.events, files.events],
        "hosts ingest": [files.events, "--host", "here", "-o", files.new("x.tables")],
        "hosts top": [files.tables],
        "hosts waits": [files.tables],
        "hosts path": [files.tables, "--host", "here", "--thread", str(WAITER)],
        "hosts bottleneck": [files.tables],
        "overhead": ["--rounds", "3", "--", program, "normal"],
        "doctor": ["--pid", pid],
    }
    return [*verb.split(), *map(str, words[verb])]
