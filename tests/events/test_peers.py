# SPDX-License-Identifier: MIT
"""Sockets are told by the address and the process at their other end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from harness import FLAGFINDER, flagfinder, run

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
    with subprocess.Popen([sys.executable, "-c", _SERVER], stdout=subprocess.PIPE, text=True) as server:
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
    targets = {vertex["target"] for vertex in queried["vertices"] if vertex["ends_in"] == "recvfrom"}
    name = Path(sys.executable).resolve().name[:15]
    assert len(targets) == 1
    [target] = targets
    assert target.startswith(f"a socket to 127.0.0.1:{port}, process {server.pid} (")
    assert name.startswith("python") == ("python" in target)
