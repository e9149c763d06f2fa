# SPDX-License-Identifier: MIT
import queue, threading, time

q = queue.Queue()


def producer():
    for i in range(20):
        time.sleep(0.01)
        q.put(i)


threading.Thread(target=producer).start()


def beat():
    while True:
        time.sleep(0.01)


threading.Thread(target=beat, daemon=True).start()
time.sleep(0.3)
while True:
    q.get()
