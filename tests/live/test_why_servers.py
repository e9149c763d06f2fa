# SPDX-License-Identifier: MIT
"""`flagfinder why` of clients of a server that waits for whatever comes, as event loops do."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from harness import live_or_skip, needs_root, started
from planted import why

# A server that takes clients, prints its id and what they send, and answers nothing.
LOOP = """
import os, selectors, socket, sys
def loop(listener, *others):
    selector = selectors.DefaultSelector()
    for channel in (listener, *others):
        selector.register(channel, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                client, _ = listener.accept()
                selector.register(client, selectors.EVENT_READ)
            elif question := key.fileobj.recv(1000):
                os.write(1, b"%d %s\\n" % (os.getpid(), question))
            else:
                os._exit(0)
"""
SERVER = """
family = getattr(socket, sys.argv[1])
address = ("127.0.0.1", 0) if family == socket.AF_INET else "\\0of-" + str(os.getpid())
listener = socket.socket(family)
listener.bind(address)
listener.listen()
if os.fork() == 0:
    client = socket.socket(family)
    client.connect(listener.getsockname())
    listener.close()
    client.sendall(str(os.getpid()).encode())
    client.recv(1)
    os._exit(0)
loop(listener)
"""
# Each of two servers asks the other before it would answer.
TWO = """
ours, theirs = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
own, other = (theirs, ours) if os.fork() == 0 else (ours, theirs)
asks = socket.create_connection(other.getsockname())
other.close()
asks.sendall(str(os.getpid()).encode())
loop(own, asks)
"""

# It reads only a part of what came, and epoll tells of the rest no more.
HALF = """
import select
listener = socket.create_server(("127.0.0.1", 0))
if os.fork() == 0:
    client = socket.create_connection(listener.getsockname())
    client.sendall(b"%d and more" % os.getpid())
    client.recv(1)
    os._exit(0)
client, _ = listener.accept()
watched = select.epoll()
watched.register(listener, select.EPOLLIN)
watched.register(client, select.EPOLLIN | {how})
while True:
    watched.poll()
    word = b""
    while not word.endswith(b" "):
        word += client.recv(1)
    os.write(1, b"%d %s\\n" % (os.getpid(), word))
"""
# The client read a part of the answer, and asks about another connection only.
LEFT = """
import selectors, threading
listener = socket.create_server(("127.0.0.1", 0))
if os.fork() == 0:
    asks, other = [socket.create_connection(listener.getsockname()) for _ in range(2)]
    listener.close()
    asks.sendall(str(os.getpid()).encode())
    asks.recv(10)
    {more}
    selector = selectors.DefaultSelector()
    selector.register(other, selectors.EVENT_READ)
    selector.select()
client, other = [listener.accept()[0] for _ in range(2)]
question = client.recv(100)
client.sendall(b"x" * 1000)
os.write(1, b"%d %s\\n" % (os.getpid(), question))
loop(listener, client, other)
"""
# Both ask about their end of a connection, and nothing is due on it.
IDLE = """
import select
ends = socket.socketpair()
child = os.fork()
ends[child != 0].close()
watched = select.poll()
for channel in (ends[child == 0], *os.pipe()[:1]):
    watched.register(channel, select.POLLIN)
if child:
    os.write(1, b"%d %d\\n" % (os.getpid(), child))
watched.poll()
"""
# What it serves is asked for, and it does not even begin.
FUSE = """
import ctypes, tempfile, time
fd, folder = os.open("/dev/fuse", os.O_RDWR), tempfile.mkdtemp()
options = f"fd={fd},rootmode=40000,user_id=0,group_id=0"
words = [word.encode() for word in ("x", folder, "fuse", options)]
assert ctypes.CDLL(None).mount(*words[:3], 0, words[3]) == 0
asks = os.fork()
if asks == 0:
    os.close(fd)
    os.stat(folder + "/file")
print(os.getpid(), asks, flush=True)
time.sleep(10000)
"""


@contextmanager
def running(code: str, *words: str, questions: int = 1) -> Iterator[tuple[int, int]]:
    """The ids of a server and of who asked it, once so many servers have read a question."""
    command = ["unshare", "-m"] if code == FUSE else []
    command += ["/usr/bin/python3", "-c", LOOP + code, *words]
    with started(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(questions)]
        server, client = map(int, lines[0].split())
        yield server, client


@pytest.mark.live
@pytest.mark.parametrize("family", ["AF_INET", "AF_UNIX"])
def test_a_server_that_waits_for_any_client_is_in_no_deadlock_with_one(family: str) -> None:
    with running(SERVER, family) as (server, client):
        asked: list[dict[str, Any]] = [why(pid)["root"] for pid in (client, server)]
    assert [(root["kind"], root["pid"]) for root in asked] == [("input", server)] * 2
    assert all(f"process {client} " in root["what"] for root in asked)


@pytest.mark.live
def test_servers_that_ask_each_other_are_in_a_deadlock() -> None:
    with running(TWO, questions=2) as (first, second):
        report = why(first)
    assert report["root"]["kind"] == "deadlock"
    assert {link["waiter"]["pid"] for link in report["links"]} == {first, second}


@pytest.mark.live
def test_an_idle_connection_is_no_deadlock() -> None:
    with running(IDLE) as (first, second):
        report = why(first)
    assert report["root"]["kind"] == "unknown", report["story"]
    assert "whose turn it is is not known" in report["root"]["what"], report["story"]
    assert report["root"]["pid"] in (first, second)


@pytest.mark.live
@pytest.mark.parametrize("how", ["EPOLLET", "EPOLLONESHOT"])
def test_a_server_that_epoll_told_only_once_has_not_read_all(how: str) -> None:
    with running(HALF.replace("{how}", f"select.{how}")) as (server, client):
        root = why(client)["root"]
    assert (root["kind"], root["pid"]) == ("input", server)
    assert "has 8 bytes to read" in root["what"]
    assert how in root["what"]


@pytest.mark.live
@needs_root("to mount a file system needs root")
def test_the_server_of_a_file_system_is_named_and_not_waited_for() -> None:
    with running(FUSE) as (server, client):
        wait_until(client, "fuse")
        report = why(client)
    assert (report["root"]["kind"], report["root"]["pid"]) == ("timer", server), report["story"]
    assert report["links"][0]["known"] in ("seen", "assumed")


@pytest.mark.live
def test_what_a_script_asks_is_told_of_a_process_that_the_first_did_not_start() -> None:
    asks = "while ! [ -e /never/there ]; do sleep 0.1; done"
    with (
        started(["sh", "-c", asks], stdout=subprocess.PIPE) as script,
        started(["cat"], stdin=script.stdout) as reader,
    ):
        assert script.stdout is not None
        script.stdout.close()
        time.sleep(0.5)  # it looks again and again
        root = why(reader.pid)["root"]
    assert (root["kind"], root["pid"]) == ("unknown", script.pid)
    assert "[ -e /never/there ]" in root["what"]


def wait_until(pid: int, begins: str) -> None:
    """Until its first thread sleeps in such a function of the kernel."""
    for _ in range(100):
        if begins in Path(f"/proc/{pid}/wchan").read_text(encoding="ascii"):
            return
        time.sleep(0.05)
    pytest.fail(f"process {pid} does not sleep in {begins}")


# Its one server waits for a child by spawnSync, and the child for that server.
SPAWNS = """
const server = require('net').createServer((client) => client.end('hello'));
server.listen(0, '127.0.0.1', () => {
  const port = String(server.address().port);
  console.log('started');
  require('child_process').spawnSync(process.argv[1], ['-c', process.argv[2], port]);
});
"""
CLIENT = """
import socket, sys
socket.create_connection(("127.0.0.1", int(sys.argv[1]))).recv(10)
"""


@pytest.mark.live
def test_threads_of_node_that_have_no_work_serve_nobody() -> None:
    node = shutil.which("node")
    if node is None:
        live_or_skip("node is not installed")
    command = [node, "-e", SPAWNS, sys.executable, CLIENT]
    with started(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(1)  # the child connects
        report = why(process.pid)
    assert report["root"]["kind"] == "deadlock", report["story"]
    waiters = {link["waiter"]["pid"] for link in report["links"]}
    assert process.pid in waiters and len(waiters) == 2, report["story"]


LEFT_TO_READ = "has 990 bytes to read, and thread "


@pytest.mark.live
def test_an_answer_that_an_event_loop_does_not_ask_for_is_told() -> None:
    with running(LEFT.format(more="")) as (_, client):
        root = why(client)["root"]
    assert (root["kind"], root["pid"], root["assumed"]) == ("input", client, True), root
    assert LEFT_TO_READ in root["what"], root


@pytest.mark.live
def test_an_answer_that_another_thread_may_come_to_read_is_not_told() -> None:
    more = "threading.Thread(target=threading.Event().wait).start()"
    with running(LEFT.format(more=more)) as (_, client):
        report = why(client)
    assert LEFT_TO_READ not in str(report), report["story"]
