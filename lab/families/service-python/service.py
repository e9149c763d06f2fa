# SPDX-License-Identifier: MIT
"""Hangs of small services: ``service.py HANG`` says that it begins, and stands a moment later."""

import asyncio
import queue
import socket
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor


def listen() -> None:
    """A server that nobody asks."""
    server = socket.create_server(("127.0.0.1", 0))
    while True:
        client, _ = server.accept()
        client.close()


def beat() -> None:
    """A heartbeat."""
    while True:
        time.sleep(0.2)


def part(pool: ThreadPoolExecutor, n: int) -> int:
    """One part needs another."""
    time.sleep(0.3)
    return pool.submit(str, n).result() is not None


def pool() -> None:
    """All threads of a pool wait for tasks that only this pool could run."""
    workers = ThreadPoolExecutor(2)
    print(sum(workers.map(lambda n: part(workers, n), range(2))))


def read(fd: int) -> int:
    """It reads what never comes."""
    with open(fd, encoding="utf-8", closefd=False) as file:
        return len(file.readline())


def processes() -> None:
    """A worker of a pool of processes reads."""
    with ProcessPoolExecutor(2) as workers:
        done = [workers.submit(len, "a"), workers.submit(read, 0)]
        print([one.result() for one in done])


class Store:
    """Rows behind a lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.rows: dict[str, int] = {}
        self.jobs: queue.Queue[str] = queue.Queue()

    def load(self, name: str) -> None:
        """It forgets the lock where there is nothing to load."""
        self.lock.acquire()
        if not name:
            return
        self.rows[name] = 1
        self.lock.release()

    def work(self) -> None:
        """Loads what it is told to."""
        while True:
            self.load(self.jobs.get())


def left() -> None:
    """A lock was left locked by an early return; who did it waits for its next job."""
    store = Store()
    threading.Thread(target=store.work, name="loader", daemon=True).start()
    store.jobs.put("")
    time.sleep(0.3)
    with store.lock:
        print(len(store.rows))


async def refresh(lock: asyncio.Lock, answer: asyncio.Future) -> None:
    """It holds the lock while it waits for an answer."""
    async with lock:
        await answer


async def ticks() -> None:
    """A heartbeat of the loop."""
    while True:
        await asyncio.sleep(0.2)


async def tasks() -> None:
    """A task waits for a lock whose holder waits for a future that nobody sets."""
    lock = asyncio.Lock()
    answer = asyncio.get_running_loop().create_future()
    beats = asyncio.create_task(ticks())
    holder = asyncio.create_task(refresh(lock, answer))
    await asyncio.sleep(0)
    async with lock:
        print(beats, holder)


def crossed() -> None:
    """Two transfers take two locks in different order."""
    first, second = threading.Lock(), threading.Lock()

    def move(one: threading.Lock, other: threading.Lock) -> None:
        with one:
            time.sleep(0.3)
            with other:
                print("moved")

    back = threading.Thread(target=move, args=(second, first))
    back.start()
    move(first, second)


if __name__ == "__main__":
    print("begins", flush=True)
    for idle in (listen, beat):
        threading.Thread(target=idle, daemon=True).start()
    hang = sys.argv[1]
    if hang == "tasks":
        asyncio.run(tasks())
    else:
        {"pool": pool, "processes": processes, "left": left, "crossed": crossed}[hang]()
