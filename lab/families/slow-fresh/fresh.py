# SPDX-License-Identifier: MIT
"""More services in which one request is slow among fast ones, as operators meet them."""

import asyncio
import hashlib
import subprocess
import sys
import threading
import time
import urllib.request

from lab_truth import ready, role
from scene import clock, free_port, listens, wait_until


def thread() -> None:
    """A coroutine keeps a semaphore while a thread computes a checksum for it."""

    def hashes() -> None:
        role("hasher")
        hashlib.pbkdf2_hmac("sha512", b"a", b"b", 900000)

    async def other(one: asyncio.Semaphore) -> None:
        await asyncio.sleep(0.5)
        async with one:
            await asyncio.to_thread(hashes)

    async def requests() -> None:
        one = asyncio.Semaphore(1)
        beside = asyncio.create_task(other(one))
        for _ in range(90):
            async with one:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.01)
        await beside

    asyncio.run(requests())


def node(path: str) -> None:
    """A server of node computes for one request, and for no other meanwhile."""
    port = free_port()
    server = subprocess.Popen(["node", path, str(port)])
    wait_until(lambda: listens(port))
    for i in range(60):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/{i}").read()
        time.sleep(0.01)
    server.terminate()


def pipes() -> None:
    """Both ends of two pipes are full: each process writes, and none reads."""
    packing = subprocess.Popen(
        [sys.executable, __file__, "packer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    for _ in range(60):
        packing.stdin.write(b"x" * 100 + b"\n")
        packing.stdin.flush()
        packing.stdout.readline()
        time.sleep(0.01)
    threading.Timer(1, ready).start()
    packing.stdin.write((b"x" * 100 + b"\n") * 9000)


def packer() -> None:
    """Answers each line with one."""
    role("packer")
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    if sys.argv[1] == "packer":
        packer()
    else:
        role("service")
        threading.Thread(target=clock, daemon=True).start()
        globals()[sys.argv[1]](*sys.argv[2:])
        ready()
