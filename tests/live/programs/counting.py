# SPDX-License-Identifier: MIT
"""Threads that compute, hand things to each other and wait; on "end" it tells how often anything
was wrong.
"""

import queue
import sys
import threading
import time

done = threading.Event()
rounds = [0, 0, 0]
wrong = [0]


def compute() -> None:
    while not done.is_set():
        wrong[0] += sum(number * number for number in range(200)) != 2646700
        rounds[0] += 1


def give(channel: queue.Queue) -> None:
    while not done.is_set():
        channel.put(rounds[1])
        rounds[1] += 1
        time.sleep(0.001)
    channel.put(None)


def take(channel: queue.Queue) -> None:
    while (number := channel.get()) is not None:
        wrong[0] += number != rounds[2]
        rounds[2] += 1


between: queue.Queue = queue.Queue()
threads = [
    threading.Thread(target=compute),
    threading.Thread(target=give, args=[between]),
    threading.Thread(target=take, args=[between]),
]
for thread in threads:
    thread.start()
print("ready", flush=True)
while sys.stdin.readline() == "count\n":
    print(*rounds, flush=True)
done.set()
for thread in threads:
    thread.join()
print(wrong[0] + (rounds[1] != rounds[2]), flush=True)
