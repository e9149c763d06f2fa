# SPDX-License-Identifier: MIT
"""``flagfinder why`` of programs that run an event loop of asyncio."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from harness import need_python_3_11, started
from planted import why

PYTHON = "/usr/bin/python3"
SERVER = """
import socket, sys
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
clients = []
while True:
    clients.append(listening.accept())
"""
CLIENT = """
import asyncio, sys
async def main():
    reader, writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[1]))
    print("connected", flush=True)
    print(await reader.readline())
asyncio.run(main())
"""
HEAD = """
import asyncio
async def ready():
    print("ready", flush=True)
"""
ALONE = """
async def main():
    await ready()
    await asyncio.Event().wait()
asyncio.run(main())
"""
TOLD = """
import signal
async def main():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await ready()
    await stop.wait()
asyncio.run(main())
"""
FULL = """
async def work(jobs, done, lock):
    while True:
        job = await jobs.get()
        async with lock:
            await done.put(job)
async def main():
    jobs, done, lock = asyncio.Queue(), asyncio.Queue(1), asyncio.Lock()
    workers = [asyncio.create_task(work(jobs, done, lock)) for _ in range(3)]
    for job in range(5):
        jobs.put_nowait(job)
    await ready()
    await asyncio.gather(*workers)
asyncio.run(main())
"""
SLEEPS = """
async def sets(stop):
    await asyncio.sleep(100000)
    stop.set()
async def main():
    stop = asyncio.Event()
    task = asyncio.create_task(sets(stop))
    await ready()
    await stop.wait()
asyncio.run(main())
"""

LOCKED = """
async def transfer(one, other):
    async with one:
        await asyncio.sleep(0.05)
        async with other:
            pass
async def main():
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    one, other = asyncio.Lock(), asyncio.Lock()
    await ready()
    await asyncio.gather(transfer(one, other), transfer(other, one))
asyncio.run(main())
"""
SERVES = """
async def main():
    stop = asyncio.Event()
    server = await asyncio.start_server(lambda *_: stop.set(), "127.0.0.1", 0)
    await ready()
    await stop.wait()
asyncio.run(main())
"""


# Threads that wait for coroutines of a loop in another thread.
BRIDGED = """
import threading
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
def call(coroutine):
    return asyncio.run_coroutine_threadsafe(coroutine, loop).result()
async def fetch(reading):
    await ready()
    return await reading.readline()
async def other():
    await asyncio.sleep(1000)
call(asyncio.sleep(0))
asyncio.run_coroutine_threadsafe(other(), loop)
reading = asyncio.StreamReader(loop=loop)
print(call(fetch(reading)))
"""
# A function on a loop waits for a coroutine that only this loop would run.
ON_ITSELF = """
def call(coroutine, loop):
    return asyncio.run_coroutine_threadsafe(coroutine, loop).result()
async def main():
    await ready()
    call(asyncio.sleep(0), asyncio.get_running_loop())
asyncio.run(main())
"""


@contextmanager
def running(text: str) -> Iterator[dict[str, Any]]:
    """The report of a program that has said that it is ready."""
    need_python_3_11(PYTHON)
    with started([PYTHON, "-c", HEAD + text], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        yield why(process.pid)


@pytest.mark.live
def test_an_event_loops_channel_to_itself_explains_nothing_beside_a_connection() -> None:
    with started([PYTHON, "-c", SERVER], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        port = server.stdout.readline().decode().strip()
        with started([PYTHON, "-c", CLIENT, port], stdout=subprocess.PIPE) as client:
            assert client.stdout is not None and client.stdout.readline()
            report = why(client.pid)
        assert report["root"]["pid"] == server.pid, report["story"]
        assert "waits for something else" in report["root"]["what"], report["story"]


@pytest.mark.live
def test_an_event_loop_with_a_single_task_waits_for_itself() -> None:
    with running(ALONE) as report:
        first = report["links"][0]
    assert first["waits_for"]["name"].startswith("`await asyncio.Event().wait()` (main at")
    assert report["root"]["kind"] == "deadlock", report["story"]
    assert "no other task" in report["root"]["what"], report["story"]


@pytest.mark.live
def test_an_event_loop_that_a_signal_ends_waits_for_that() -> None:
    with running(TOLD) as report:
        assert report["root"]["kind"] == "input", report["story"]
    assert "SIGTERM" in report["root"]["what"], report["story"]


@pytest.mark.live
def test_tasks_that_wait_for_each_other_are_told() -> None:
    with running(FULL) as report:
        first = report["links"][0]
    assert report["root"]["kind"] == "deadlock", report["story"]
    assert "none goes on" in report["root"]["what"], report["story"]
    told = [first["waits_for"]["name"], *report["notes"]]
    assert sum("`await done.put(job)` (work at" in text for text in told) == 1, report["story"]
    assert sum("`async with lock` (work at" in text for text in told) == 2, report["story"]


@pytest.mark.live
def test_a_task_that_sleeps_ends_the_wait_of_another() -> None:
    with running(SLEEPS) as report:
        first = report["links"][0]
    assert first["waits_for"]["name"].startswith("`await stop.wait()` (main at"), report["story"]
    assert report["root"]["kind"] == "timer", report["story"]
    assert "comes to `stop.set()`" in report["root"]["what"], report["story"]


@pytest.mark.live
@pytest.mark.parametrize(("text", "kind"), [(LOCKED, "deadlock"), (SERVES, "input")])
def test_a_new_client_ends_no_wait_for_a_lock(text: str, kind: str) -> None:
    with running(text) as report:
        assert report["root"]["kind"] == kind, report["story"]


@pytest.mark.live
def test_a_thread_that_waits_for_a_coroutine_waits_for_the_thread_of_its_loop() -> None:
    with running(BRIDGED) as report:
        first, second = report["links"][:2]
    assert first["known"] == "by-code", report["story"]
    assert "its event loop runs that" in first["reason"]
    assert second["waiter"]["tid"] == first["owed_by"]["tid"], report["story"]
    assert second["at"]["function"] == "fetch", report["story"]


@pytest.mark.live
def test_a_function_on_a_loop_that_waits_for_the_loop_waits_for_itself() -> None:
    with running(ON_ITSELF) as report:
        assert report["root"]["kind"] == "deadlock", report["story"]
        assert "waits for itself" in report["root"]["what"], report["story"]
        assert report["root"]["at"]["function"] == "call"
