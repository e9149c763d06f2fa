# SPDX-License-Identifier: MIT
"""`flagfinder why` on goroutines that owe each other, in programs with symbols and without."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from harness import flagfinder, live_or_skip, run, started
from planted import SOURCES, why

pytestmark = pytest.mark.live


@pytest.fixture(scope="module", params=["symbols", "stripped"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("go") is None:
        live_or_skip("go is not installed")
    built = tmp_path_factory.mktemp("go") / "owes"
    flags = "-s -w" if request.param == "stripped" else ""
    ran = run(["go", "build", "-ldflags", flags, "-o", built, SOURCES / "owes.go"], timeout=300)
    assert ran.returncode == 0, ran.stderr
    return built


def asked(program: Path, kind: str, *more: str) -> dict[str, Any]:
    with started([program, kind, *more], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        time.sleep(0.5)  # until all goroutines wait
        return why(process.pid)


def functions(links: Sequence[dict[str, Any]]) -> list[str]:
    return [link["at"]["function"] for link in links]


def test_goroutines_in_a_circle_are_told_with_their_places(program: Path) -> None:
    report = asked(program, "locks")
    assert report["root"]["kind"] == "deadlock" and not report["root"]["assumed"]
    first, *circle = report["links"]
    assert first["at"]["function"] == "main.locks" and first["waiter"]["task"] == "goroutine 1"
    assert functions(circle) == 2 * ["main.(*account).move"]
    assert {link["known"] for link in circle} == {"by-reference"}
    assert circle[0]["waiter"]["task"] == circle[1]["owed_by"]["task"]
    assert {link["waits_for"]["kind"] for link in circle} == {"lock"}
    where = report["links"][1]["at"]
    assert where["file"].endswith("owes.go") and where["line"] == 25


def test_a_circle_is_found_where_the_first_goroutine_waits_for_clients(program: Path) -> None:
    report = asked(program, "server")
    assert report["root"]["kind"] == "deadlock" and not report["root"]["assumed"]
    assert functions(report["links"]) == 2 * ["main.(*account).move"]


def test_who_sends_owes_it_to_who_reads_later(program: Path) -> None:
    report = asked(program, "room")
    # A function that a timer calls later could read as well.
    assert report["root"]["kind"] == "deadlock" and report["root"]["assumed"]
    assert functions(report["links"]) == ["main.room", "main.produces"]


def test_a_lock_that_was_left_locked_is_owed_by_nobody(program: Path) -> None:
    report = asked(program, "left")
    assert report["root"]["kind"] == "unknown"
    assert functions(report["links"]) == ["main.left", "main.(*account).spend"]
    assert "can reach the lock unlocks it" in report["root"]["what"]


def test_a_condition_is_owed_by_who_signals_it_once_a_peer_sent(program: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as peer:
        report = asked(program, "condition", f"127.0.0.1:{peer.getsockname()[1]}")
    link = report["links"][0]
    assert link["waits_for"]["name"] == "sync.Cond.Wait" and link["known"] == "by-reference"
    assert report["links"][1]["at"]["function"] == "main.(*queue).put"
    assert "TCP 127.0.0.1" in report["links"][1]["waits_for"]["name"]


def test_a_chain_of_goroutines_goes_on_at_a_child(program: Path) -> None:
    report = asked(program, "child")
    assert report["root"]["kind"] == "timer" and report["root"]["name"] == "sleep"


@pytest.mark.parametrize(("kind", "owing"), [("rounds", "reads"), ("neighbours", "use")])
def test_only_who_has_the_very_object_owes_it(kind: str, owing: str, program: Path) -> None:
    report = asked(program, kind)
    assert report["root"]["kind"] == "timer" and report["root"]["name"] == "sleep"
    first, second, *_ = report["links"]
    assert first["at"]["function"] == f"main.{kind}" and first["known"] == "by-reference"
    assert second["at"]["function"].endswith(f").{owing}")


def test_nobody_sends_to_a_channel_that_is_not_there(program: Path) -> None:
    report = asked(program, "nothing")
    assert report["root"]["kind"] == "deadlock"
    assert report["root"]["task"] == "goroutine 1"
    assert "nobody can send or close" in report["root"]["what"]


def test_the_test_that_hangs_is_named_and_its_goroutine(tmp_path: Path) -> None:
    if shutil.which("go") is None:
        live_or_skip("go is not installed")
    (tmp_path / "go.mod").write_text("module shop\ngo 1.21\n")
    (tmp_path / "shop_test.go").write_text(
        'package shop\n\nimport "testing"\n\nfunc TestOrder(t *testing.T) {\n'
        "\tpaid := make(chan int)\n\tgo func() { select {} }()\n\t<-paid\n}\n"
    )
    built = run(["go", "test", "-c", "-o", "t", "."], cwd=tmp_path, timeout=300)
    assert built.returncode == 0, built.stderr
    ran = flagfinder(
        "guard", "--after", "4", "--json", "--", "go", "test", ".", cwd=tmp_path, timeout=120
    )
    assert ran.returncode == 124, ran.stderr
    reports = json.loads(ran.stdout)["reports"]
    tests = [test for report in reports for test in report["tests"]]
    assert [test["function"] for test in tests] == ["shop.TestOrder"], tests
    assert tests[0]["file"].endswith("shop_test.go")
