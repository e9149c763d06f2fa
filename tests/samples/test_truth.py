# SPDX-License-Identifier: MIT
"""The truths without flagfinder: normal ends, spin does not, and a watchpoint sees who reads the
printed word.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from harness import announced_flags, kill_session, live_or_skip, run, wait_until_it_spins
from sizes import is_positive, is_usual, sample_programs, truth_of


def programs(names: Iterable[str]) -> list[Any]:
    """Every fourth sample's program; the others, and variants, are for `make soak`."""
    return [
        pytest.param(name, marks=() if is_usual(name, False, turn=1, of=2) else pytest.mark.soak)
        for name in names
    ]


@pytest.mark.parametrize("program", programs(sample_programs()))
def test_normal_ends(program: str, samples: Path) -> None:
    assert run([samples / program, "normal"], timeout=20).returncode == 0


def accesses(
    pid: int, address: int, size: int, where: Path, seconds: float, *options: str
) -> list[tuple[str, list[str]]]:
    """Who touches the word: (thread, function and, with a call graph, its callers) of each
    access.
    """
    data = where / "perf.data"
    event = ["-e", f"mem:{address:#x}/{size}:rw"]
    watched = run(
        [
            "perf",
            "record",
            "-q",
            "-o",
            data,
            "-c",
            "1",
            *options,
            *event,
            "-p",
            str(pid),
            "--",
            "sleep",
            str(seconds),
        ],
        timeout=60,
    )
    if (
        "not permitted" in watched.stderr.lower()
        or "access to performance" in watched.stderr.lower()
    ):
        live_or_skip(f"perf may not watch addresses here: {watched.stderr}")
    shown = run(["perf", "script", "-i", data, "-F", "tid,ip,sym"], timeout=120).stdout
    hits: list[tuple[str, list[str]]] = []
    for line in filter(str.strip, shown.splitlines()):
        if line.startswith("\t"):
            frame = line.split(maxsplit=1)
        else:
            thread, *frame = line.split(maxsplit=2)
            hits.append((thread, []))
        if len(frame) == 2:
            hits[-1][1].append(
                re.split(r"[(.+]", frame[1].removeprefix("main."))[0].split("::")[-1]
            )
    return hits


def settled(
    pid: int, address: int, size: int, where: Path, alone: bool
) -> list[tuple[str, list[str]]]:
    """Who touches the word once the program hangs: the threads that end before, and touch it, are
    gone then. perf sees little or nothing while a thread ends that it watches.
    """
    deadline = time.monotonic() + 10
    while True:
        hits = accesses(pid, address, size, where, 0.2)
        is_it = len(hits) >= 20 and (not alone or {tid for tid, _ in hits} == {str(pid)})
        if is_it or time.monotonic() > deadline:
            return hits


WITH_A_WORD = [p for p in sample_programs() if is_positive(p) and truth_of(p)["kind"] != "syscall"]


@pytest.mark.parametrize("program", programs(WITH_A_WORD))
def test_spinning_thread_reads_the_printed_word(
    program: str, samples: Path, tmp_path: Path
) -> None:
    if shutil.which("perf") is None or shutil.which("readelf") is None:
        live_or_skip("perf and readelf are needed to watch an address")
    error = tmp_path / "stderr"
    with error.open("wb") as stderr:
        process = subprocess.Popen(
            [samples / program, "spin"],
            stderr=stderr,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    truth = truth_of(program)
    readers = set(truth["reader_functions"])
    try:
        wait_until_it_spins(process, error, truth["value_spin"])
        address, size = announced_flags(error.read_text())[0]
        hits = settled(process.pid, address, size, tmp_path, truth["thread"] == "main")
        functions = {name for _, names in hits for name in names}
        if not functions & readers:
            # Unoptimised, the load is in a library function that the reader calls.
            calls = accesses(
                process.pid, address, size, tmp_path, 0.02, "--call-graph", "dwarf,1024"
            )
            functions = {name for _, names in calls for name in names[:4]}
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            kill_session(process)
    assert len(hits) >= 20, f"{len(hits)} accesses in 0.2 s"
    if truth["thread"] == "main":
        assert {tid for tid, _ in hits} == {str(process.pid)}, (
            "another thread touches the word while it spins"
        )
    assert functions & readers, functions
