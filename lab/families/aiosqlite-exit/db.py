# SPDX-License-Identifier: MIT
import asyncio, aiosqlite

conn = None


async def fetch():
    global conn
    conn = await aiosqlite.connect(":memory:")
    async with conn.execute("select 41 + 1") as cur:
        return (await cur.fetchone())[0]


def test_fetch():
    assert asyncio.run(fetch()) == 42
