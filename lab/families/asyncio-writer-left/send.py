# SPDX-License-Identifier: MIT
import asyncio
import socket

from lab_truth import ready, role, truth

pending: list[bytes] = [b"hello"]


def on_writable(end: socket.socket) -> None:
    if pending:
        end.send(pending.pop())


async def main() -> None:
    own, other = socket.socketpair()
    own.setblocking(False)
    asyncio.get_running_loop().add_writer(own.fileno(), on_writable, own)
    truth(f"fd socket {own.fileno()}")
    role("waiter")
    await asyncio.sleep(0.2)
    ready()
    await asyncio.sleep(100_000)
    other.close()


asyncio.run(main())
