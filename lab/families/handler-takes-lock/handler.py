# SPDX-License-Identifier: MIT
import queue, threading, signal, os, time

q = queue.Queue()


def consume():
    while True:
        q.get()


threading.Thread(target=consume, daemon=True, name="consumer").start()
time.sleep(0.3)


def again(*a):
    q.put("b")


signal.signal(signal.SIGUSR1, again)
with q.mutex:  # as inside q.put()
    os.kill(os.getpid(), signal.SIGUSR1)
    time.sleep(1)
