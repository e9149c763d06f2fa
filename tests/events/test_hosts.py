# SPDX-License-Identifier: MIT
"""A client on one host waits for a thread on another, whose clock says something else. Hosts are
network namespaces.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from harness import command_into, flagfinder, run, started
from other_host import ADDRESSES, as_of_another_boot, two_hosts

pytestmark = [pytest.mark.live, pytest.mark.timeout(300), pytest.mark.usefixtures("recorder")]
DAY = 86_400_000_000_000
MS = 1_000_000
LATE = 400 * MS

# Each fourth request asks a thread that then holds a lock for long.
_SERVER = """
import socket, sys, threading, time
lock, asked, held = threading.Lock(), threading.Event(), threading.Event()
def holder():
    while True:
        asked.wait()
        asked.clear()
        with lock:
            held.set()
            LATE
holds = threading.Thread(target=holder, daemon=True)
holds.start()
print("holder", holds.native_id)
datagrams = sys.argv[2] == "udp"
kind = socket.SOCK_DGRAM if datagrams else socket.SOCK_STREAM
with socket.socket(type=kind) as server:
    server.bind((sys.argv[1], 0))
    if not datagrams:
        server.listen()
    print("port", server.getsockname()[1])
    print("end", 0, flush=True)
    connection = server if datagrams else server.accept()[0]
    while True:
        request, address = connection.recvfrom(100)
        if request in (b"", b"end"):
            break
        if request.startswith(b"slow"):
            asked.set()
            held.wait()
            held.clear()
        with lock:
            answer = b"answer to " + request
        connection.sendto(answer, address) if datagrams else connection.send(answer)
"""
SLEEPS, COMPUTES = (
    "time.sleep(0.4)",
    "end = time.monotonic() + 0.4\n            while time.monotonic() < end: pass",
)
_CLIENT = """
import os, socket, sys, time
kind = socket.SOCK_DGRAM if sys.argv[3] == "udp" else socket.SOCK_STREAM
with socket.socket(type=kind) as connection:
    connection.connect((sys.argv[1], int(sys.argv[2])))
    print("client", os.getpid(), flush=True)
    for turn in range(20):
        time.sleep(0.005)
        connection.send(b"slow" if turn == 15 else f"quick {turn}".encode())
        connection.recv(100)
    connection.send(b"end")
"""


@dataclass(frozen=True)
class Run:
    """Files of both hosts, and the thread ids of client and holder."""

    shop: Path
    bank: Path
    roles: dict[str, int]


def _roles(lines: Iterator[str]) -> dict[str, int]:
    roles: dict[str, int] = {}
    for line in lines:
        role, number = line.split()
        roles[role] = int(number)
        if role == "end":
            break
    return roles


def record(folder: Path, late: str, protocol: str = "tcp") -> Run:
    """Records both at work; the clock of the server's host is a day ahead."""
    shop, bank = folder / "shop.events", folder / "bank.events"
    options = ("--network", "--host")
    with two_hosts() as (here, there):
        server = [*there, *command_into(bank, "events record", *options, "bank"), "--"]
        server += [sys.executable, "-c", _SERVER.replace("LATE", late), ADDRESSES[1], protocol]
        with started(server, stdout=subprocess.PIPE, text=True) as serving:
            assert serving.stdout is not None
            roles = _roles(serving.stdout)
            client = [*here, *command_into(shop, "events record", *options, "shop"), "--"]
            client += [sys.executable, "-c", _CLIENT, ADDRESSES[1], str(roles["port"]), protocol]
            ran = run(client, timeout=120)
            assert ran.returncode == 0, ran.stderr
            assert serving.wait(timeout=60) == 0
    as_of_another_boot(bank, DAY, "another")
    return Run(shop, bank, roles | _roles(iter(ran.stdout.splitlines())))


def joined(ran: Run) -> tuple[Path, dict[str, Any]]:
    """The graph of both hosts, and what it says of them."""
    graph = ran.shop.with_suffix(".graph")
    built = flagfinder("graph", "build", ran.shop, ran.bank, "-o", graph, "--json")
    assert built.returncode == 0, built.stderr
    return graph, json.loads(built.stdout)


def culprit(graph: Path) -> tuple[int, str] | None:
    """The thread and its host that the diagnosis names first; None where one of this host is among
    the culprits.
    """
    found = json.loads(flagfinder("diagnose", graph, "--auto", "--json").stdout)
    culprits = [(one["tid"], one["host"]) for one in found["culprits"]]
    return None if any(host == "shop" for _, host in culprits) else culprits[0]


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
@pytest.mark.parametrize("late", [SLEEPS, COMPUTES], ids=["sleeps", "computes"])
def test_the_culprit_on_the_other_host_is_named(tmp_path: Path, late: str, protocol: str) -> None:
    ran = record(tmp_path, late, protocol)
    graph, summary = joined(ran)
    bank = summary["hosts"][1]
    assert bank["received"] >= 20
    assert bank["added"] < -DAY + 60_000 * MS
    assert 0 < bank["widths"][0] <= bank["widths"][1]
    assert culprit(graph) == (ran.roles["holder"], "bank")
    found = json.loads(flagfinder("diagnose", graph, "--auto", "--json").stdout)
    assert found["thread"]["tid"] == ran.roles["client"]
    assert found["dur"] > LATE * 9 // 10
    root = found["culprits"][0]
    assert root["class"] == ("LongWait" if late == SLEEPS else "LongRunning")


def test_the_critical_path_names_the_host(tmp_path: Path) -> None:
    ran = record(tmp_path, COMPUTES)
    graph, _ = joined(ran)
    words = ("--thread", ran.roles["client"], "--host", "shop")
    told = flagfinder("critical-path", graph, *words).stdout
    path = json.loads(flagfinder("critical-path", graph, *words, "--json").stdout)
    shares = {share["tid"]: share for share in path["threads"] if "@bank" in share["thread"]}
    assert shares[ran.roles["holder"]]["dur"] > LATE // 2
    assert f"thread {ran.roles['holder']} (" in told
    assert "@bank)" in told
    there = flagfinder("critical-path", graph, "--thread", ran.roles["client"], "--host", "nowhere")
    assert there.returncode == 1
