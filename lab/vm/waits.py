# SPDX-License-Identifier: MIT
"""The main thread waits for what another writes. Each line on stdin makes that write 3."""

import os
import queue
import sys
import threading
import time


class Box:
    """What is polled."""

    shared = 0

    def __init__(self) -> None:
        self.state = 0


state = 0
box = Box()
table = {"ready": 0}
cells = [0] * 16
items: queue.Queue[int] = queue.Queue()
lock = threading.Lock()


def writes() -> None:
    global state  # noqa: PLW0603
    with lock:
        for _ in sys.stdin:
            state = box.state = Box.shared = table["ready"] = cells[5] = 3


writer = threading.Thread(target=writes)
writer.start()
time.sleep(0.2)
match sys.argv[1]:
    case "global":
        while state != 7:
            pass
    case "attribute":
        while box.state != 7:
            time.sleep(0)
    case "class":
        while Box.shared != 7:
            time.sleep(0)
    case "table":
        while table["ready"] != 7:
            time.sleep(0.001)
    case "cells":
        while cells[5] != 7:
            time.sleep(0)
    case "file":
        while not os.path.exists("/tmp/never"):  # noqa: PTH110
            pass
    case "queue":
        items.get()
    case "lock":
        lock.acquire()
    case "join":
        writer.join()
