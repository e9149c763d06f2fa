# SPDX-License-Identifier: MIT
"""What is recorded of what threads send and receive (``--network``)."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from harness import command_into, flagfinder, run

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("recorder")]

_PROGRAM = """
import os, socket
def pair(family, address):
    with socket.create_server((address, 0), family=family) as server:
        one = socket.create_connection(server.getsockname()[:2])
        return one, server.accept()[0]
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    one, other = pair(family, address)
    one.send(b"hello")
    other.recv(3, socket.MSG_PEEK)
    other.recv(2)
    other.recvmsg(100)
    os.sendfile(other.fileno(), os.open(__import__("sys").executable, os.O_RDONLY), 0, 50)
    os.read(one.fileno(), 100)
    one, other = (socket.socket(family, socket.SOCK_DGRAM) for _ in range(2))
    other.bind((address, 0))
    one.sendto(b"datagram", other.getsockname())
    other.recvfrom(100)
    one.sendmsg([b"datagram ", b"in parts"], [], 0, other.getsockname())
    other.recvmsg(100)
    one.connect(other.getsockname())
    os.write(one.fileno(), b"x" * 100)
    os.read(other.fileno(), 200)
"""


def record(file: Path, *options: str) -> list[tuple[str, int, str]]:
    """What was exchanged: the event, bytes and position."""
    program = [sys.executable, "-c", _PROGRAM]
    ran = run([*command_into(file, "events record", *options), "--", *program], timeout=60)
    assert ran.returncode == 0, ran.stderr
    dump = flagfinder("events", "dump", file, "--limit", 100_000).stdout
    found = re.findall(r" (sent|received) \d+ flow \d+ (\d+) bytes to (\w+)", dump)
    return [(event, int(count), position) for event, count, position in found]


def test_each_end_tells_the_same_of_what_goes_over_tcp_and_udp(tmp_path: Path) -> None:
    all_of_them = record(tmp_path / "x.events", "--network")
    assert len(all_of_them) == 22
    for found in (all_of_them[:11], all_of_them[11:]):
        (sent, _, end), (*_, middle), (got, _, last), *rest = found
        assert [(event, count) for event, count, _ in found[:3]] == [
            ("sent", 5),
            ("received", 2),
            ("received", 3),
        ]
        assert (sent, got, end) == ("sent", "received", last)
        assert int(end, 16) - int(middle, 16) == 3
        assert [count for _, count, _ in rest] == [50, 50, 8, 8, 17, 17, 100, 100]
        # Of datagrams in parts only the first part is read, and its end is another there.
        same = [rest[n][2] == rest[n + 1][2] for n in range(0, len(rest), 2)]
        assert same == [True, True, False, True]
        assert len({position for *_, position in rest}) == 5


def test_without_the_option_nothing_is_recorded_of_it(tmp_path: Path) -> None:
    assert record(tmp_path / "x.events") == []
