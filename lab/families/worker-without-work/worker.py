# SPDX-License-Identifier: MIT
import queue, sys, threading

q = queue.SimpleQueue()


def worker():
    print("BLAMED", threading.get_native_id(), flush=True)
    while True:
        q.get()


t = threading.Thread(target=worker, name="worker")
t.start()
if sys.argv[1] == "joins":
    t.join()
