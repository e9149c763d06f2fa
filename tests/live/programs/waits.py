"""Polls what another thread sets a third of a second later, or in spin mode never: waits.py KIND normal|spin."""

import sys
import threading
import time


class Job:
    def __init__(self):
        self.number = 0
        self.done = False


job = Job()
state = {"done": False}
results = []
event = threading.Event()
done = False


def finish():
    global done  # noqa: PLW0603
    time.sleep(0.3)
    if sys.argv[2] == "spin":
        return
    job.number = 3
    job.done = True
    state["done"] = True
    results.append(1)
    event.set()
    done = True


def attribute():
    while not job.done:
        time.sleep(0.01)


def number():
    while job.number < 3:
        time.sleep(0.01)


def variable():
    while not done:
        time.sleep(0.01)


def item():
    while not state["done"]:
        time.sleep(0.01)


def length():
    print(f"FLAG address={id(results) + 16:#x} size=8", file=sys.stderr, flush=True)
    while len(results) < 1:
        time.sleep(0.01)


def method():
    while not event.is_set():
        time.sleep(0.01)


threading.Thread(target=finish).start()
globals()[sys.argv[1]]()
