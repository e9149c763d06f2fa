# SPDX-License-Identifier: MIT
import ctypes
import os
import select

from lab_truth import ready, role, truth

libc = ctypes.CDLL(None)
watch = libc.inotify_init1(os.O_CLOEXEC)
libc.inotify_add_watch(watch, os.environ["LAB_RUN"].encode(), 0x100)  # IN_CREATE
truth(f"fd watch {watch}")
role("waiter")
with open(os.environ["LAB_RUN"] + "/settings", "w"):
    pass
ready()
poller = select.poll()
poller.register(watch, select.POLLIN)
reloads = 0
while True:
    for fd, _ in poller.poll():
        if fd == watch:
            reloads += 1
