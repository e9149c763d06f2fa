# SPDX-License-Identifier: MIT
import asyncio

from lab_truth import ready, role


async def move(first: asyncio.Lock, second: asyncio.Lock) -> None:
    async with first:
        await asyncio.sleep(0.05)
        async with second:
            print("moved")


async def main() -> None:
    left, right = asyncio.Lock(), asyncio.Lock()
    role("waiter")
    asyncio.get_running_loop().call_later(0.3, ready)
    await asyncio.gather(move(left, right), move(right, left))


asyncio.run(main())
