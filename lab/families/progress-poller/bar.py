# SPDX-License-Identifier: MIT
import hashlib
import sys
import threading
import time

from lab_truth import ready, role


class Job:
    done = 0

    def run(self) -> None:
        role("worker")
        block = bytes(1 << 20)
        while True:
            hashlib.sha256(block).digest()
            self.done += 1


job = Job()
threading.Thread(target=job.run, daemon=True).start()
role("waiter")
time.sleep(0.2)
ready()
shown = -1
while shown < 10_000_000:
    if job.done != shown:
        shown = job.done
        sys.stdout.write(f"\r{shown} blocks")
    time.sleep(0.005)
