# SPDX-License-Identifier: MIT
"""A program looks again and again for a file that another process makes."""

import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from lab_truth import ready, role


def builder(folder: str) -> None:
    """Makes a file for each line that it reads; the tenth takes long."""
    role("builder")
    for line in sys.stdin:
        begun = time.thread_time()
        while time.thread_time() < begun + (0.8 if line == "10\n" else 0.002):
            sum(range(2000))
        Path(folder, line.strip()).touch()


def clock() -> None:
    """An innocent: it counts by the clock."""
    role("clock")
    while True:
        sum(range(9000))
        time.sleep(0.03)


def main() -> None:
    """Asks for a file, and looks for it."""
    role("service")
    threading.Thread(target=clock, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, __file__, folder]
        other = subprocess.Popen(words, stdin=subprocess.PIPE, text=True)
        for i in range(20):
            other.stdin.write(f"{i}\n")
            other.stdin.flush()
            while not Path(folder, str(i)).exists():
                time.sleep(0.04)
            sum(range(50000))
        other.stdin.close()
        other.wait()
    ready()


if __name__ == "__main__":
    builder(sys.argv[1]) if sys.argv[1:] else main()
