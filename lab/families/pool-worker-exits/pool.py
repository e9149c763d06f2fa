# SPDX-License-Identifier: MIT
import multiprocessing
import os
import time

from lab_truth import ready, role


def work(number: int) -> int:
    if number == 3:
        os._exit(1)
    return number * number


if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool:
        results = [pool.apply_async(work, (number,)) for number in range(5)]
        time.sleep(0.6)
        role("waiter")
        ready()
        print([result.get() for result in results])
