# SPDX-License-Identifier: MIT
"""Polls what another thread sets 0.3 s later, or in spin mode never: waits.py KIND normal|spin.

Says first where the word lies that it polls, by the layout of CPython 3.11.
"""

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


def word(address):
    with open("/proc/self/mem", "rb", buffering=0) as memory:  # noqa: PTH123
        memory.seek(address)
        return int.from_bytes(memory.read(8), "little")


def announce(address):
    print(f"FLAG address={address:#x} size=8", file=sys.stderr, flush=True)


def announce_attribute(owner, value):
    """The first attribute with this value. A pointer four words before an object leads to all."""
    slot = word(id(owner) - 32)
    while word(slot) != id(value):
        slot += 8
    announce(slot)


def announce_item(table, name):
    """The value of an item stands behind its name; the fifth word of a dictionary leads to both."""
    slot = word(id(table) + 32)
    while (word(slot), word(slot + 8)) != (id(name), id(table[name])):
        slot += 8
    announce(slot + 8)


def attribute():
    announce_attribute(job, False)
    while not job.done:
        time.sleep(0.01)


def number():
    announce_attribute(job, 0)
    while job.number < 3:
        time.sleep(0.01)


def variable():
    announce_item(globals(), "done")
    while not done:
        time.sleep(0.01)


def item():
    announce_item(state, "done")
    while not state["done"]:
        time.sleep(0.01)


def length():
    announce(id(results) + 16)
    while len(results) < 1:
        time.sleep(0.01)


def length_beside_ctypes():
    """A library of many more modules is loaded."""
    import ctypes  # noqa: F401, PLC0415

    length()


def method():
    announce_attribute(event, False)
    while not event.is_set():
        time.sleep(0.01)


threading.Thread(target=finish).start()
globals()[sys.argv[1]]()
