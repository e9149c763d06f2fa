# SPDX-License-Identifier: MIT
"""A small program with a good and a spinning mode, recorded once for all command-line tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import compiled, flagfinder, run, started

from .verbs import Files, write_perf

PROGRAM = r"""
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile int ready;
static int channel[2];

static void *prepare(void *argument)
{
    char byte;
    (void)argument;
    if (read(channel[0], &byte, 1) == 1)
        ready = 7;
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    if (pipe(channel) != 0 || pthread_create(&thread, NULL, prepare, NULL) != 0)
        return 1;
    if (argc > 1 && strcmp(argv[1], "spin") != 0) {
        usleep(100000);
        if (write(channel[1], "x", 1) != 1)
            return 1;
    }
    while (!ready)
        sched_yield();
    pthread_join(thread, NULL);
    printf("ready %d\n", ready);
    return 0;
}
"""


@dataclass(frozen=True)
class Pair:
    """Where the program and its two recordings are."""

    program: Path
    normal: Path
    spin: Path


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("program")
    source = directory / "waiter.c"
    source.write_text(PROGRAM)
    return compiled(directory / "waiter", source, "-O2")


@pytest.fixture(scope="session")
def pair(program: Path, tracer: None) -> Pair:  # noqa: ARG001
    """Both recordings, sound by the invariant checker."""
    normal, spin = program.with_name("normal.trace"), program.with_name("spin.trace")
    good = flagfinder("record", "-o", normal, "--", program, "normal")
    assert (good.returncode, good.stdout) == (0, "ready 7\n"), good.stderr
    bad = flagfinder("record", "-o", spin, "--stop-when-spinning", "1", "--", program, "spin")
    assert bad.returncode == 0, bad.stderr
    for trace in (normal, spin):
        check = flagfinder("trace", "check", trace)
        assert check.returncode == 0, check.stdout
    return Pair(program, normal, spin)


@pytest.fixture(scope="module")
def files(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Files]:
    """What every verb can work on, and a process that spins: no longer than a module, it takes a
    processor.
    """
    folder = tmp_path_factory.mktemp("files")
    tenet, perf, events, graph, tables = (
        folder / name for name in ("x.tenet", "perf.data", "x.events", "x.graph", "x.tables")
    )
    write_perf(perf)
    for words in (
        ("trace", "export", pair.spin, "-o", tenet, "--instructions", "100"),
        ("events", "import", perf, "-o", events),
        ("graph", "build", events, "-o", graph),
        ("hosts", "ingest", events, "--host", "here", "-o", tables),
    ):
        made = flagfinder(*words)
        assert made.returncode == 0, made.stderr
    work = tmp_path_factory.mktemp("work")
    with started([pair.program, "spin"]) as process:
        made = run(["gcore", "-o", folder / "core", str(process.pid)], timeout=60)
        assert made.returncode == 0, made.stderr
        core = folder / f"core.{process.pid}"
        yield Files(
            pair.program,
            pair.normal,
            pair.spin,
            tenet,
            perf,
            events,
            graph,
            tables,
            core,
            work,
            process.pid,
        )
