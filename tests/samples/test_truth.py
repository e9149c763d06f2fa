"""The truths without flagfinder: normal ends, spin does not, and a watchpoint sees who reads the printed word."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from harness import announced_flags, kill_session, live_or_skip, run
from test_samples import PROGRAMS, is_positive, truth_of


@pytest.mark.parametrize("program", PROGRAMS)
def test_normal_ends(program: str, samples: Path) -> None:
    assert run([samples / program, "normal"], timeout=20).returncode == 0


def accesses(
    pid: int, address: int, size: int, where: Path, seconds: float, *options: str
) -> list[tuple[str, list[str]]]:
    """Who touches the word: (thread, function and, with a call graph, its callers) of each access."""
    data = where / "perf.data"
    event = ["-e", f"mem:{address:#x}/{size}:rw"]
    watched = run(
        ["perf", "record", "-q", "-o", data, "-c", "1", *options, *event, "-p", str(pid), "--", "sleep", str(seconds)],
        timeout=60,
    )
    if "not permitted" in watched.stderr.lower() or "access to performance" in watched.stderr.lower():
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
            hits[-1][1].append(re.split(r"[(.+]", frame[1].removeprefix("main."))[0].split("::")[-1])
    return hits


@pytest.mark.parametrize("program", [p for p in PROGRAMS if is_positive(p) and truth_of(p)["kind"] != "syscall"])
def test_spinning_thread_reads_the_printed_word(program: str, samples: Path, tmp_path: Path) -> None:
    if shutil.which("perf") is None or shutil.which("readelf") is None:
        live_or_skip("perf and readelf are needed to watch an address")
    error = tmp_path / "stderr"
    with error.open("wb") as stderr:
        process = subprocess.Popen(
            [samples / program, "spin"], stderr=stderr, stdin=subprocess.DEVNULL, start_new_session=True
        )
    truth = truth_of(program)
    readers = set(truth["reader_functions"])
    try:
        time.sleep(1)
        assert process.poll() is None, "spin mode ended"
        address, size = announced_flags(error.read_text())[0]
        hits = accesses(process.pid, address, size, tmp_path, 0.2)
        functions = {name for _, names in hits for name in names}
        if not functions & readers:
            # Unoptimised, the load is in a library function that the reader calls.
            calls = accesses(process.pid, address, size, tmp_path, 0.02, "--call-graph", "dwarf,1024")
            functions = {name for _, names in calls for name in names[:4]}
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            kill_session(process)
    assert len(hits) >= 20, f"{len(hits)} accesses in 0.2 s"
    if truth["thread"] == "main":
        assert {tid for tid, _ in hits} == {str(process.pid)}, "another thread touches the word while it spins"
    assert functions & readers, functions
