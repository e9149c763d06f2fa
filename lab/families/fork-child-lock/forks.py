# SPDX-License-Identifier: MIT
import os
import threading
import time

from lab_truth import ready, role

registry = threading.Lock()


def refresh() -> None:
    with registry:
        time.sleep(0.3)


thread = threading.Thread(target=refresh)
thread.start()
time.sleep(0.1)
child = os.fork()
if child == 0:
    role("waiter")
    with registry:
        os._exit(0)
thread.join()
time.sleep(0.1)
ready()
os.waitpid(child, 0)
