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


@pytest.mark.parametrize("program", [p for p in PROGRAMS if is_positive(p) and truth_of(p)["kind"] != "syscall"])
def test_spinning_thread_reads_the_printed_word(program: str, samples: Path, tmp_path: Path) -> None:
    if shutil.which("perf") is None or shutil.which("readelf") is None:
        live_or_skip("perf and readelf are needed to watch an address")
    error = tmp_path / "stderr"
    with error.open("wb") as stderr:
        process = subprocess.Popen(
            [samples / program, "spin"], stderr=stderr, stdin=subprocess.DEVNULL, start_new_session=True
        )
    try:
        time.sleep(1)
        assert process.poll() is None, "spin mode ended"
        address, size = announced_flags(error.read_text())[0]
        data = tmp_path / "perf.data"
        watch = ["perf", "record", "-q", "-o", data, "-c", "1", "-e", f"mem:{address:#x}/{size}:rw", "-p", process.pid]
        watched = run([str(word) for word in [*watch, "--", "sleep", "0.2"]], timeout=60)
        if "not permitted" in watched.stderr.lower() or "access to performance" in watched.stderr.lower():
            live_or_skip(f"perf may not watch addresses here: {watched.stderr}")
        shown = run(["perf", "script", "-i", data, "-F", "tid,ip,sym"], timeout=120)
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            kill_session(process)
    hits = re.findall(r"^\s*(\d+)\s+[0-9a-f]+\s+(\S+)", shown.stdout, re.M)
    assert len(hits) >= 20, f"{len(hits)} accesses in 0.2 s: {watched.stderr}{shown.stderr}"
    truth = truth_of(program)
    if truth["thread"] == "main":
        assert {tid for tid, _ in hits} == {str(process.pid)}, "another thread touches the word while it spins"
    functions = {re.split(r"[(.+]", symbol.removeprefix("main."))[0].split("::")[-1] for _, symbol in hits}
    assert functions & set(truth["reader_functions"]), functions
