# SPDX-License-Identifier: MIT
import sys, threading

lock = threading.Lock()


def inner():
    with lock:
        pass


def outer():
    with lock:
        inner()


if sys.argv[1] == "beside":
    threading.Thread(target=threading.Event().wait, daemon=True, name="idle").start()
outer()
