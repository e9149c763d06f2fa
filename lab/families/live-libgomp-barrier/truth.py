# SPDX-License-Identifier: MIT
"""A debugger reads where the barrier's counter lies: rbp points to it in the loop of libgomp that
spins (`mov 0(%rbp),%ecx`). Its low three bits are flags, none of which is set.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

pid = os.environ["LAB_PID"]
time.sleep(3 if pid != "0" else 0)
told = subprocess.run(
    [
        *("gdb", "-p", pid, "-batch"),
        *("-ex", "info symbol $pc", "-ex", "p/x $rbp", "-ex", "p *(int *)$rbp"),
    ],
    capture_output=True,
    text=True,
    check=False,
).stdout
place = re.search(r"^\$1 = (0x[0-9a-f]+)$", told, re.M)
value = re.search(r"^\$2 = (\d+)$", told, re.M)
if "libgomp" not in told or place is None or value is None or int(value[1]) % 8:
    sys.exit(told[-300:])
with Path(os.environ["LAB_TRUTH"]).open("a") as file:
    file.write(f"role waiter {pid} {pid}\nword flag {place[1]} 4\nready\n")
