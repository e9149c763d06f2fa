# SPDX-License-Identifier: MIT
"""Sockets and pipes are told by the address, the path and the process at their other end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from harness import FLAGFINDER, command_into, flagfinder, run

pytestmark = [pytest.mark.live, pytest.mark.timeout(120), pytest.mark.usefixtures("recorder")]

_SERVER = """
import socket, sys, time
with socket.create_server(("127.0.0.1", 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    connection, _ = listener.accept()
    with connection:
        connection.recv(1)
        time.sleep(0.5)
        connection.send(b"x")
        connection.recv(1)
"""
_CLIENT = """
import os, socket, sys, time
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    print(os.getpid(), flush=True)
    time.sleep(0.5)
    connection.send(b"x")
    connection.recv(1)
"""


def test_a_wait_for_a_server_names_its_address_and_process(tmp_path: Path) -> None:
    path, graph = tmp_path / "run.events", tmp_path / "run.graph"
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout
            port = server.stdout.readline().strip()
            command = [*FLAGFINDER, "events", "record", "-o", path, "--pid", server.pid]
            ran = run([*command, "--", sys.executable, "-c", _CLIENT, port], timeout=60)
            assert ran.returncode == 0, ran.stderr
        finally:
            server.kill()
    assert flagfinder("graph", "build", path, "-o", graph).returncode == 0
    client = ran.stdout.strip()
    queried = json.loads(flagfinder("graph", "query", graph, "--tid", client, "--json").stdout)
    targets = {
        vertex["target"] for vertex in queried["vertices"] if vertex["ends_in"] == "recvfrom"
    }
    name = Path(sys.executable).resolve().name[:15]
    assert len(targets) == 1
    [target] = targets
    assert target.startswith(f"a socket to 127.0.0.1:{port}, process {server.pid} (")
    assert name.startswith("python") == ("python" in target)


_LISTENER = """
import socket, sys, time
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(sys.argv[1])
    listener.listen()
    print("listens", flush=True)
    connection, _ = listener.accept()
    with connection:
        connection.recv(1)
        time.sleep(1)
        connection.send(b"x")
        connection.recv(1)
"""
_CALLER = """
import os, socket, sys
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    print(os.getpid(), flush=True)
    connection.send(b"x")
    connection.recv(1)
"""


def waited_on(path: Path, tid: int, call: str) -> set[str | None]:
    """What the thread waited on in these calls."""
    graph = path.with_suffix(".graph")
    assert flagfinder("graph", "build", path, "-o", graph).returncode == 0
    queried = json.loads(flagfinder("graph", "query", graph, "--tid", tid, "--json").stdout)
    return {vertex["target"] for vertex in queried["vertices"] if vertex["ends_in"] == call}


def test_a_unix_socket_is_told_by_its_path_and_a_server_that_is_not_recorded(
    tmp_path: Path,
) -> None:
    path, place = tmp_path / "run.events", tmp_path / "socket"
    with subprocess.Popen(
        [sys.executable, "-c", _LISTENER, place], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout
            assert server.stdout.readline() == "listens\n"
            command = [
                *command_into(path, "events record", "--syscalls", "target"),
                "--",
                sys.executable,
            ]
            ran = run([*command, "-c", _CALLER, place], timeout=60)
            assert ran.returncode == 0, ran.stderr
        finally:
            server.kill()
    [target] = waited_on(path, int(ran.stdout), "recvfrom")
    assert target
    assert target.startswith(f"a socket to {place}, process {server.pid} (")


def test_a_pipe_is_told_by_who_writes_to_it(tmp_path: Path) -> None:
    """The writer is this process, which is not recorded."""
    path = tmp_path / "run.events"
    command = [*command_into(path, "events record"), "--", "sh", "-c", "echo $$; exec cat"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as recording:
        assert recording.stdin
        assert recording.stdout
        tid = int(recording.stdout.readline())
        time.sleep(1)
        recording.stdin.close()
        assert recording.wait(timeout=60) == 0
    targets = waited_on(path, tid, "read")
    assert any(target and f", process {os.getpid()} (" in target for target in targets), targets
