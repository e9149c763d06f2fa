# SPDX-License-Identifier: MIT
"""The truth of a program that waits for its only child: ``python child.py SECONDS``. It stands
once the processes have used no processor for a second, after so many seconds.
"""

import os
import sys
import time
from pathlib import Path


def used(pid: str) -> int:
    """Nanoseconds of processor."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


own = os.environ["LAB_PID"]
children = Path(f"/proc/{own}/task/{own}/children").read_text().split()
if not children:
    sys.exit("it has no child")
began = int(Path(f"/proc/{own}/stat").read_text().rpartition(")")[2].split()[19])
age = time.clock_gettime(time.CLOCK_BOOTTIME) - began / os.sysconf("SC_CLK_TCK")
before = [used(pid) for pid in (own, *children)]
time.sleep(1)
if age < float(sys.argv[1]) or sum(map(used, (own, *children))) - sum(before) > 20e6:
    sys.exit("it still works")
with Path(os.environ["LAB_TRUTH"]).open("a", encoding="utf-8") as file:
    file.write(f"role waiter {own} {own}\nrole child {children[0]}\nready\n")
