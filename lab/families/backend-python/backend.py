# SPDX-License-Identifier: MIT
"""Hangs of a backend: ``backend.py HANG`` says that it begins, and stands a moment later."""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait

FETCHES = ThreadPoolExecutor(1)
PARSES = ThreadPoolExecutor(1)


def fetch(page: int) -> int:
    """A page is parsed before the next one is fetched."""
    time.sleep(0.2)
    return PARSES.submit(parse, page).result()


def parse(page: int) -> int:
    """A page refers to another one."""
    return FETCHES.submit(fetch, page + 1).result()


def pools() -> None:
    """A task of one pool waits for a task of another, and that for one of the first."""
    wait([FETCHES.submit(fetch, 1)])


class Account:
    """It has a lock."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.rows: list[str] = []

    def serve(self, wake: threading.Event) -> None:
        """Each time that it is woken it takes the lock and gives it back."""
        while True:
            wake.wait()
            wake.clear()
            self.guard.acquire()
            self.rows.append("served")
            self.guard.release()

    def load(self) -> None:
        """It reads while it has the lock."""
        self.guard.acquire()
        try:
            self.rows.append(sys.stdin.readline())
        finally:
            self.guard.release()


def rounds() -> None:
    """One has the lock; another takes it in each round."""
    account = Account()
    threading.Thread(target=account.serve, args=(threading.Event(),), daemon=True).start()
    threading.Thread(target=account.load, daemon=True).start()
    time.sleep(0.3)
    account.guard.acquire()


if __name__ == "__main__":
    print("begins", flush=True)
    {"pools": pools, "rounds": rounds}[sys.argv[1]]()
