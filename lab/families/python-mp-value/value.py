# SPDX-License-Identifier: MIT
import ctypes
import multiprocessing
import os
import signal
import time

from lab_truth import ready, role, truth


def work(stop) -> None:
    role("waiter")
    truth(f"word stop {ctypes.addressof(stop.get_obj()):#x} 4")
    ready()
    rounds = 0
    while not stop.value:
        rounds += 1
    time.sleep(5)


if __name__ == "__main__":
    role("parent")
    stop = multiprocessing.get_context("fork").Value("i", 0)
    child = multiprocessing.get_context("fork").Process(target=work, args=(stop,))
    child.start()
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGSTOP)
    stop.value = 1
