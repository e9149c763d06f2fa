# SPDX-License-Identifier: MIT
"""The mask is a symbol of haproxy's; the start script tells its process."""

import os
import re
import sys
from pathlib import Path

import announced

told = re.search(r"pid (\d+) tid", (Path(os.environ["LAB_RUN"]) / "stdout").read_text())
if told is None:
    sys.exit("it does not run yet")
pid = int(told[1])
place = announced.symbol("threads_harmless_mask", "/usr/sbin/haproxy", pid)
with Path(os.environ["LAB_TRUTH"]).open("a") as file:
    file.write(f"role waiter {pid} {pid}\nword flag {place:#x} 8\nready\n")
