# SPDX-License-Identifier: MIT
"""A shop changes a row of a table again and again; once a job has it."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pg8000.native
from lab_truth import ready, role

CHANGE = "update stock set left_over = left_over - 1 where id = 3"


def connected() -> pg8000.native.Connection:
    """A connection to the server of this start."""
    port = Path(os.environ["LAB_RUN"], "port").read_text(encoding="utf-8")
    return pg8000.native.Connection("postgres", host="127.0.0.1", port=int(port))


def batch() -> None:
    """Changes the row, and computes before it commits."""
    role("batch")
    rows = connected()
    print("ready", flush=True)
    sys.stdin.readline()
    rows.run("begin")
    rows.run(CHANGE)
    print("changed", flush=True)
    begun = time.thread_time()
    while time.thread_time() < begun + 0.7:
        sum(range(2000))
    rows.run("commit")


def clock() -> None:
    """An innocent: it counts by the clock."""
    role("clock")
    while True:
        sum(range(9000))
        time.sleep(0.03)


def shop() -> None:
    """Sells one each ten milliseconds."""
    role("service")
    threading.Thread(target=clock, daemon=True).start()
    subprocess.Popen(["bash", str(Path(__file__).with_name("server.sh"))])
    while not Path(os.environ["LAB_RUN"], "port").exists():
        time.sleep(4)
    job = subprocess.Popen(
        [sys.executable, __file__, "batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    job.stdout.readline()
    rows = connected()
    for i in range(60):
        if i == 40:
            job.stdin.write(b"go\n")
            job.stdin.flush()
            job.stdout.readline()
        rows.run(CHANGE)
        time.sleep(0.01)
    job.wait()
    ready()


if __name__ == "__main__":
    batch() if sys.argv[1:] else shop()
