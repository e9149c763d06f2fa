# SPDX-License-Identifier: MIT
import time
from concurrent.futures import ThreadPoolExecutor

from lab_truth import ready, role

pool = ThreadPoolExecutor(max_workers=2)


def inner(number: int) -> int:
    return number + 1


def outer(number: int) -> int:
    time.sleep(0.1)
    return pool.submit(inner, number).result()


tasks = [pool.submit(outer, number) for number in range(4)]
time.sleep(0.4)
role("waiter")
ready()
print([task.result() for task in tasks])
