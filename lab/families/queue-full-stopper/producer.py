# SPDX-License-Identifier: MIT
import queue
import threading
import time

from lab_truth import ready, role

jobs: "queue.Queue[int]" = queue.Queue(maxsize=4)


def consume() -> None:
    while True:
        job = jobs.get()
        print(10 // (5 - job))


threading.Thread(target=consume, daemon=True).start()
role("waiter")
for number in range(100):
    if number == 8:
        time.sleep(0.2)
        ready()
    jobs.put(number)
