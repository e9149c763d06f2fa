# SPDX-License-Identifier: MIT
import subprocess
import threading
import time

from lab_truth import ready, role

COMMAND = "sleep 100000 & echo role daemon $! >> $LAB_TRUTH; echo started"


def tell() -> None:
    time.sleep(0.5)
    ready()


role("waiter")
threading.Thread(target=tell).start()
print(subprocess.run(["sh", "-c", COMMAND], capture_output=True, check=True).stdout)
