# SPDX-License-Identifier: MIT
"""It stands once pytest has printed its verdict; the worker is its only other thread."""

import os
import sys
import time
from pathlib import Path

pid = os.environ["LAB_PID"]
if "1 passed" not in (Path(os.environ["LAB_RUN"]) / "stdout").read_text():
    sys.exit("the test has not passed")
time.sleep(1)
(worker,) = (task.name for task in Path(f"/proc/{pid}/task").iterdir() if task.name != pid)
with Path(os.environ["LAB_TRUTH"]).open("a") as file:
    file.write(f"role waiter {pid} {pid}\nrole worker {pid} {worker}\nready\n")
