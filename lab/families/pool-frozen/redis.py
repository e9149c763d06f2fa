# SPDX-License-Identifier: MIT
"""A redis-server with I/O threads, one of which is frozen while clients ask: its main thread polls
for it.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

SYS_TGKILL = 234
FROZEN = "io_thd_2"


def main() -> None:
    """Starts it, asks until the I/O threads have begun, freezes one, and asks on."""
    socket = f"{os.environ['LAB_RUN']}/redis"
    options = "--port 0 --io-threads 4 --io-threads-do-reads yes --appendonly no --save".split()
    server = subprocess.Popen(
        ["redis-server", *options, "", "--unixsocket", socket],
        env={**os.environ, "LD_PRELOAD": sys.argv[1]},
        stdout=subprocess.DEVNULL,
    )
    while not Path(socket).exists():
        time.sleep(0.1)
    load = ["redis-benchmark", "-s", socket, "-c", "32", "-q", "-t", "get", "-n"]
    subprocess.run([*load, "2000"], stdout=subprocess.DEVNULL, check=True)
    tasks = Path(f"/proc/{server.pid}/task").iterdir()
    [tid] = [int(task.name) for task in tasks if (task / "comm").read_text().strip() == FROZEN]
    with subprocess.Popen([*load, "1000000"], stdout=subprocess.DEVNULL):
        time.sleep(0.5)
        ctypes.CDLL(None).syscall(SYS_TGKILL, server.pid, tid, signal.SIGUSR1)
        with Path(os.environ["LAB_TRUTH"]).open("a") as truth:
            truth.write(f"target {server.pid}\nrole waiter {server.pid} {server.pid}\nready\n")
        server.wait()


main()
