# SPDX-License-Identifier: MIT
import asyncio


async def transfer(a, b, name):
    async with a:
        await asyncio.sleep(0.05)
        async with b:
            print(name)


async def handle(r, w):
    w.close()


async def main():
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    x, y = asyncio.Lock(), asyncio.Lock()
    await asyncio.gather(transfer(x, y, "one"), transfer(y, x, "two"))
    server.close()


asyncio.run(main())
