# SPDX-License-Identifier: MIT
import os
import re
import time

from lab_truth import ready, role, truth

flags = os.environ["MAKEFLAGS"]
found = re.search(r"--jobserver-(?:auth|fds)=(?:fifo:(\S+)|(\d+),)", flags)
pipe = os.open(found[1], os.O_RDONLY) if found[1] else int(found[2])
os.read(pipe, 1)
shell = os.getppid()  # it becomes the make within
if os.fork() == 0:
    role("keeper")
    time.sleep(0.7)
    truth(f"role waiter {shell}")
    ready()
    time.sleep(100_000)
