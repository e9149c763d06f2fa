# SPDX-License-Identifier: MIT
"""One thread polls an attribute that another sets after reading a byte."""

import ctypes
import os
import sys
import threading
import time


class Job:
    def __init__(self):
        self.number = 0
        self.done = False

    def wait(self):
        while not self.done:
            time.sleep(0)


def serve(jobs):
    while os.read(0, 1):
        job = jobs[-1]
        job.done = True
        while jobs[-1] is job and job.number < 15:
            time.sleep(0.001)


jobs = [Job()]
threading.Thread(target=serve, args=(jobs,), daemon=True).start()
total = 0
for number in range(15):
    job = jobs[-1]
    job.number = number
    values = ctypes.cast(id(job) - 32, ctypes.POINTER(ctypes.c_void_p))[0]
    print(f"FLAG address={values + 8:#x} size=8", file=sys.stderr, flush=True)
    job.wait()
    total += sum(range(number * 10))
    jobs.append(Job())
print(total)
