# SPDX-License-Identifier: MIT
"""Names of processes, threads and files reach no terminal with control characters, whatever the
verb.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import flagfinder, live_or_skip, record, started

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]
ACTING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufffd]"
)
HOSTILE = "\x1b]0;x\x07\u202e"
SHOWN = "\\u001b]0;x"
# Its second thread waits for the first, which polls in spin mode; both have hostile names.
SOURCE = r"""
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
static volatile int ready;
static int channel[2];
void __attribute__((noinline)) poll_it(void) { while (!ready) sched_yield(); }
static void *prepare(void *argument)
{
    char byte;
    prctl(PR_SET_NAME, "w\033]0;x\007\342\200\256");
    if (read(channel[0], &byte, 1) == 1)
        ready = 1;
    return argument;
}
int main(int argc, char **argv)
{
    pthread_t thread;
    prctl(PR_SET_NAME, "m\033]0;x\007\342\200\256");
    if (argc < 2 || pipe(channel) != 0 || pthread_create(&thread, NULL, prepare, NULL) != 0)
        return 1;
    if (strcmp(argv[1], "spin") != 0) {
        usleep(100000);
        if (write(channel[1], "x", 1) != 1)
            return 1;
    }
    poll_it();
    pthread_join(thread, NULL);
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, in a folder and under a name that are hostile too."""
    folder = tmp_path_factory.mktemp("hostile") / f"d{HOSTILE}"
    folder.mkdir()
    (folder / "waits.c").write_text(SOURCE)
    subprocess.run(
        ["gcc", "-g", "-O1", "-pthread", "waits.c", "-o", f"waits{HOSTILE}"], cwd=folder, check=True
    )
    return folder / f"waits{HOSTILE}"


@pytest.fixture
def spinning(program: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The program spins by then."""
    with started([program, "spin"]) as process:
        time.sleep(1)
        yield process


def assert_harmless(*words: str | Path, codes: tuple[int, ...] = (0,), shows: bool = True) -> None:
    """What the command writes, to either stream, has nothing that a terminal acts on; hostile names
    are seen in it.
    """
    done = flagfinder(*words)
    assert done.returncode in codes, done.stderr
    written = done.stdout + done.stderr
    found = ACTING.search(written)
    assert not found, f"{words[0]}: {written[max(0, found.start() - 80) : found.end() + 20]!r}"
    assert not shows or SHOWN in written, written


@pytest.mark.usefixtures("tracer")
def test_recorded_runs(program: Path, tmp_path: Path) -> None:
    normal, spin = tmp_path / "normal.trace", tmp_path / f"spin{HOSTILE}.trace"
    record(normal, [program, "normal", HOSTILE])
    record(spin, [program, "spin", HOSTILE], "--stop-when-spinning", "1")
    assert_harmless("diff", normal, spin, "--color", "never")
    for options in ((), ("--json",)):
        assert_harmless("trace", "info", spin, *options)
        assert_harmless("trace", "dump", spin, "--what", "modules", *options)
        assert_harmless("trace", "dump", spin, "--limit", "20", *options)
        assert_harmless("diff", normal, spin, *options)
        assert_harmless(
            "diff",
            normal,
            spin,
            "--explain",
            *options,
            codes=(0, 2) if "--json" in options else (0,),
        )
        assert_harmless("registers", spin, "--before-divergence", normal, *options)
    assert_harmless("trace", "check", spin)
    assert_harmless("trace", "info", program, codes=(65,), shows=False)
    assert_harmless("trace", "info", tmp_path / HOSTILE, codes=(2,))


def test_live_processes(spinning: subprocess.Popen[bytes]) -> None:
    for options in ((), ("--json",)):
        assert_harmless("spin", str(spinning.pid), *options)


def test_events(program: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        live_or_skip("recording events needs CAP_BPF and CAP_PERFMON; run as root")
    events, graph, page = (
        tmp_path / f"run{HOSTILE}.events",
        tmp_path / "run.graph",
        tmp_path / "page.html",
    )
    assert_harmless("events", "record", "-o", events, "--stacks", "all", "--", program, "normal")
    assert_harmless("graph", "build", events, "-o", graph, shows=False)
    assert_harmless("events", "dump", events, "--limit", "50", shows=False)
    for options in ((), ("--json",)):
        assert_harmless("events", "info", events, *options, shows=False)
        assert_harmless("graph", "info", graph, *options, shows=False)
        assert_harmless("diagnose", graph, "--auto", *options, codes=(0, 1))
    assert_harmless("report", graph, "-o", page, codes=(0, 1), shows=False)
