# SPDX-License-Identifier: MIT
"""Two threads that each hold a lock and wait for the other's."""

import threading

left, right = threading.Lock(), threading.Lock()
both = threading.Barrier(2)


def takes(first: threading.Lock, second: threading.Lock) -> None:
    with first:
        both.wait()
        with second:
            pass


threading.Thread(target=takes, args=(left, right)).start()
takes(right, left)
