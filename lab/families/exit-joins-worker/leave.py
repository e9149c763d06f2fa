# SPDX-License-Identifier: MIT
import queue
import threading
import time

from lab_truth import ready, role

jobs: "queue.Queue[int]" = queue.Queue()


def work() -> None:
    role("worker")
    while True:
        print(jobs.get())


threading.Thread(target=work).start()
jobs.put(3)
time.sleep(0.2)
role("waiter")
ready()
