# SPDX-License-Identifier: MIT
import queue
import threading
import time

from lab_truth import ready, role

jobs: "queue.Queue[int]" = queue.Queue(maxsize=5)


def consume() -> None:
    while True:
        job = jobs.get()
        time.sleep(0.01)
        if job == 6:
            raise KeyError("price")


def produce() -> None:
    role("producer")
    for job in range(100):
        jobs.put(job)


def tick() -> None:
    role("clock")
    while True:
        time.sleep(0.3)


threading.Thread(target=tick, daemon=True).start()
threading.Thread(target=consume, daemon=True).start()
producer = threading.Thread(target=produce)
producer.start()
time.sleep(0.5)
role("waiter")
ready()
producer.join()
