# SPDX-License-Identifier: MIT
import os, sys, threading, time

r, w = os.pipe()
lock = threading.Lock()
if sys.argv[1] == "inherited" and os.fork() == 0:
    time.sleep(100000)
    os._exit(0)


def reader():
    time.sleep(0.5)
    with lock:
        os.read(r, 1)


def feeder():
    while True:
        os.write(w, b"x" * 4096)


if sys.argv[1] == "joined":
    t = threading.Thread(target=feeder)
    t.start()
    t.join()
threading.Thread(target=reader, daemon=True).start()
with lock:
    feeder()
