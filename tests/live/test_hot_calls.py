# SPDX-License-Identifier: MIT
"""Calls that are made again and again since they come back at once: `spin` and `why` say on what
file, why, and from whom the process has it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemas
from harness import assert_found, compiled, flagfinder, run, started, wait_until

SOURCE = Path(__file__).parent / "programs" / "hot_calls.c"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("hot") / "hot_calls", SOURCE, "-Wall", "-Werror")


@contextlib.contextmanager
def hot(folder: Path, *command: str | Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The program, which has /dev/null from us as its input, and the descriptor it is hot on."""
    out = folder / "stdout"
    with (
        Path("/dev/null").open("rb") as null,
        out.open("wb") as stdout,
        started(command, stdin=null, stdout=stdout) as process,
    ):
        wait_until(process, lambda: out.read_text().endswith("\n"))
        yield process, int(out.read_text())
        assert process.poll() is None, "the program did not survive"


def asked(pid: int) -> dict[str, Any]:
    """The first flag of `spin`, which is a call."""
    ran = flagfinder("spin", "--json", str(pid), timeout=90)
    assert_found(ran)
    report = json.loads(ran.stdout)
    schemas.validate(report)
    flag: dict[str, Any] = report["threads"][0]["flags"][0]
    assert flag["kind"] == "syscall", flag["name"]
    return flag


def root_of(pid: int, *, is_counted: bool = False) -> dict[str, Any]:
    """``is_counted``: only its calls were seen, so whether it waits is assumed."""
    ran = flagfinder("why", "--json", str(pid), timeout=60)
    root: dict[str, Any] = json.loads(ran.stdout)["root"]
    assert root["assumed"] == is_counted, ran.stdout
    assert ran.returncode == int(is_counted), ran.stdout + ran.stderr
    return root


@pytest.mark.live
def test_a_poll_on_a_closed_descriptor(program: Path, tmp_path: Path) -> None:
    with hot(tmp_path, program, "closed") as (process, fd):
        (told,) = asked(process.pid)["descriptors"]
        root = root_of(process.pid)
    assert (told["fd"], told["because"], told["inherited_from"]) == (fd, "not-open", None)
    assert root["kind"] == "ended" and f"not open on fd {fd}" in root["what"], root


@pytest.mark.live
def test_a_read_of_a_fifo_without_a_writer(program: Path, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with hot(tmp_path, program, "fifo", fifo) as (process, fd):
        flag = asked(process.pid)
        text = flagfinder("spin", str(process.pid), timeout=90).stdout
        root = root_of(process.pid, is_counted=flag["standing"] == "counted")
    (told,) = flag["descriptors"]
    assert (told["fd"], told["target"], told["because"]) == (fd, str(fifo), "no-writer")
    assert told["inherited_from"] is None, "it opened it itself"
    assert flag["calls_per_second"] > 100
    assert "end of file: no process has it open for writing" in " ".join(text.split()), text
    assert "such calls a second" in text
    assert (
        root["kind"] == "ended" and "end of file" in root["what"] and str(fifo) in root["what"]
    ), root


@pytest.mark.live
def test_a_poll_of_the_null_device_that_was_handed_down(program: Path, tmp_path: Path) -> None:
    with hot(tmp_path, program, "null") as (process, fd):
        (told,) = asked(process.pid)["descriptors"]
        text = " ".join(flagfinder("spin", str(process.pid), timeout=90).stdout.split())
        root = root_of(process.pid)
    assert (told["fd"], told["target"], told["because"]) == (fd, "/dev/null", "always-ready")
    parent = told["inherited_from"]
    assert (parent["pid"], parent["known"]) == (os.getpid(), "seen")
    assert f"inherited from process {os.getpid()}" in text, text
    assert root["kind"] == "input" and "(/dev/null), inherited from" in root["what"], root


@pytest.mark.live
def test_what_xargs_gives_its_commands_as_input(program: Path, tmp_path: Path) -> None:
    """It opens /dev/null after the fork, so that no process but the command holds it."""
    words = tmp_path / "words"
    words.write_text("input\n")
    with hot(tmp_path, "xargs", "-a", words, program) as (process, fd):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        (told,) = asked(int(children[0]))["descriptors"]
        root = root_of(int(children[0]))
    assert (told["fd"], told["target"], told["because"]) == (fd, "/dev/null", "end-of-file")
    parent = told["inherited_from"]
    assert (parent["pid"], parent["name"]) == (process.pid, "xargs")
    assert root["kind"] == "input" and f"xargs ({process.pid})" in root["what"], root


@pytest.mark.live
def test_an_epoll_descriptor_with_a_socket_whose_peer_has_closed(
    program: Path, tmp_path: Path
) -> None:
    with hot(tmp_path, program, "peer") as (process, fd):
        flag = asked(process.pid)
        root = root_of(process.pid)
    (told,) = flag["descriptors"]
    assert (told["fd"], told["because"], told["peers"]) == (fd, "peer-closed", [])
    if flag["symbol"].startswith("epoll"):
        assert told["via"] is not None
    assert root["kind"] == "ended" and "peer has closed" in root["what"], root


@pytest.mark.live
@pytest.mark.parametrize("how", ["closed", "fifo", "peer"])
def test_a_core_tells_the_same_call(program: Path, tmp_path: Path, how: str) -> None:
    """The thread was stopped somewhere in its loop: what its other calls answer is taken from its
    memory, or supposed.
    """
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with hot(tmp_path, program, how, fifo) as (process, fd):
        live = asked(process.pid)
        made = run(["gcore", "-o", tmp_path / "core", str(process.pid)], timeout=60)
        assert made.returncode == 0, made.stderr
    ran = flagfinder("core", "--json", tmp_path / f"core.{process.pid}", timeout=90)
    assert_found(ran)
    report = json.loads(ran.stdout)
    schemas.validate(report)
    dead = report["threads"][0]["flags"][0]
    assert dead["call"]["number"] == live["call"]["number"], dead["name"]
    told = {one["fd"] for one in dead["descriptors"]}
    # Which descriptors an epoll descriptor watches is not in a core.
    assert told == ({fd} if how != "peer" else {int(dead["call"]["args"][0], 16)}), dead["name"]


_REFUSED = """
use Socket;
my $to = sockaddr_in($ARGV[0], inet_aton("127.0.0.1"));
while (1) {
    socket(my $s, PF_INET, SOCK_STREAM, getprotobyname("tcp")) or die;
    last if connect($s, $to);
    close $s;
}
"""


@pytest.mark.live
def test_what_a_script_tries_in_vain_is_told_by_its_calls_alone(tmp_path: Path) -> None:
    script = tmp_path / "refused.pl"
    script.write_text(_REFUSED)
    with socket.socket() as taken:  # It does not listen: whoever connects is refused.
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with started(["perl", script, address.split(":")[1]]) as process:
            time.sleep(0.5)
            flag, root = asked(process.pid), root_of(process.pid, is_counted=True)
            assert process.poll() is None, "the program did not survive"
    assert (flag["standing"], flag["call"]["path"]) == ("counted", address)
    assert flag["name"] == f"connect on {address} returns error {errno.ECONNREFUSED}"
    assert flag["calls_per_second"] > 0
    assert root["kind"] == "peer" and f"nobody listens at {address}" in root["what"], root


@pytest.mark.live
def test_a_script_that_asks_for_one_file_after_the_other_gets_on() -> None:
    script = "for (my $i = 0; ; $i++) { $found++ if -e '/tmp/none-' . $i }"
    with started(["perl", "-e", script]) as process:
        time.sleep(0.5)
        ran = flagfinder("spin", "--json", str(process.pid), timeout=90)
    assert ran.returncode == 1, ran.stdout
    (thread,) = json.loads(ran.stdout)["threads"]
    assert thread["flags"] == [], thread["flags"][0]["name"]
