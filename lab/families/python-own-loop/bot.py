# SPDX-License-Identifier: MIT
"""A bot whose plug-ins are plain functions; the bot's calls are coroutines. ``bot.py bad``: a
plug-in is called on the loop itself, and waits there for what only the loop does.
"""

import asyncio
import sys


class Bot:
    def __init__(self, loop):
        self.loop = loop
        self.sent = []

    async def send(self, text):
        await asyncio.sleep(0)
        self.sent.append(text)
        return len(self.sent)

    def send_and_wait(self, text):
        return asyncio.run_coroutine_threadsafe(self.send(text), self.loop).result()


def greet(bot, name):
    number = bot.send_and_wait(f"hello {name}")
    return f"greeting {number}"


async def ticks():
    while True:
        await asyncio.sleep(0.25)


async def dispatch(bot, is_bad):
    ticking = asyncio.create_task(ticks())
    await asyncio.sleep(0.6)
    if is_bad:
        print(greet(bot, "you"), flush=True)
    else:
        print(await asyncio.to_thread(greet, bot, "you"), flush=True)
    await ticking


async def main():
    print("begins", flush=True)
    await dispatch(Bot(asyncio.get_running_loop()), sys.argv[1:] == ["bad"])


asyncio.run(main())
