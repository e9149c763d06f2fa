# SPDX-License-Identifier: MIT
"""Threads that block in Python. BLAMED is the one that the first thread's wait leads to."""

import queue
import sys
import threading
import time

ONE, OTHER = threading.Lock(), threading.Lock()
both = threading.Barrier(2)
done: "queue.Queue[int]" = queue.Queue()


def first() -> None:
    with ONE:
        both.wait()
        with OTHER:
            pass


def second() -> None:
    with OTHER:
        both.wait()
        with ONE:
            pass


def answer() -> None:
    tell(threading.get_native_id())
    time.sleep(1000)
    done.put(1)


def tell(tid: int) -> None:
    print("BLAMED", tid, flush=True)


if sys.argv[1] == "locks":
    threads = [threading.Thread(target=target) for target in (first, second)]
    for thread in threads:
        thread.start()
    tell(threads[0].native_id or 0)
    for thread in threads:
        thread.join()
else:
    for target in (answer, both.wait):
        threading.Thread(target=target, daemon=True).start()
    done.get()
