# SPDX-License-Identifier: MIT
"""`flagfinder why` follows the first thread's chain before it looks at threads that only wake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness import flagfinder, started

PROGRAM = """
import sys, threading, time
lock = threading.Lock()
def beat():
    while True:
        time.sleep(0.05)
def hold():
    with lock:
        open(sys.argv[1])
def flush():
    with lock:
        pass
def wait():
    open(sys.argv[1])
for _ in range(4):
    threading.Thread(target=beat, daemon=True).start()
if sys.argv[2] == "owed":
    threading.Thread(target=hold).start()
time.sleep(0.3)
print("started", flush=True)
flush() if sys.argv[2] == "owed" else wait()
"""


@pytest.mark.live
@pytest.mark.parametrize(("how", "looks"), [("owed", False), ("alone", True)])
def test_threads_that_only_wake_are_looked_at_if_nothing_else_is_known(
    how: str, tmp_path: Path, *, looks: bool
) -> None:
    """Where the first thread's wait is owed, and the end of that known, they explain no more."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    command = [sys.executable, "-c", PROGRAM, fifo, how]
    with started(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        ran = flagfinder("why", "--json", str(process.pid), timeout=120)
    report = json.loads(ran.stdout)
    assert report["root"]["kind"] == "input", report["story"]
    assert ("looking at" in ran.stderr) is looks, ran.stderr
    if how == "owed":
        assert [link["known"] for link in report["links"]] == ["by-code", "seen"], report["story"]
