# SPDX-License-Identifier: MIT
"""Files are synchronised by threads; what they fetch goes over one event loop in a thread.
``sync.py silent``: the server sends a header, and no body.
"""

import asyncio
import queue
import sys
import threading


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.run, name="loop", daemon=True)
        self.thread.start()

    def run(self):
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()


async def serve(is_silent):
    async def answer(reader, writer):
        while line := await reader.readline():
            writer.write(b"10\n")
            if not is_silent:
                writer.write(line.rjust(10, b" "))

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


async def fetch(port, name):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{name}\n".encode())
    size = int(await reader.readline())
    body = await reader.readexactly(size)
    writer.close()
    return body


def worker(loop, port, names, done):
    while (name := names.get()) is not None:
        body = loop.call(fetch(port, name))
        done.append((name, len(body)))
        names.task_done()


def main():
    is_silent = sys.argv[1:] == ["silent"]
    servers = Loop()
    server, port = servers.call(serve(is_silent))
    loop = Loop()
    names, done = queue.Queue(), []
    for name in ("a", "b"):
        names.put(name)
    threads = [
        threading.Thread(target=worker, args=(loop, port, names, done), name=f"worker-{at}")
        for at in range(2)
    ]
    for thread in threads:
        thread.start()
    print("begins", flush=True)
    names.join()
    print(done, flush=True)
    threads[0].join()
    server.close()


main()
