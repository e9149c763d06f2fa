"""`flagfinder spin` on the real programs that spin, running free. FF_REPEAT=N repeats; the bar is 5 of 5."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import driver
import pytest
import truth
from harness import flagfinder, kill_session

HANGS = 1.5  # seconds until a program that was fed has come to where it hangs


@contextlib.contextmanager
def spinning(
    source: Path, expect: dict[str, Any], variant: str, work: Path, stderr: BinaryIO
) -> Iterator[subprocess.Popen[bytes]]:
    command = truth.build(source, expect, variant, work)
    if expect.get("driver") == "haproxy":
        with driver.serving([], source, work / "run", stderr=stderr) as server:
            server.hang()
            time.sleep(HANGS)
            yield server.process
        return
    env = expect.get("environment", {})
    with driver.feeding(command, expect["spin"], True, work, env, stderr=stderr) as process:
        try:
            time.sleep(HANGS)
            yield process
        finally:
            kill_session(process)


@pytest.mark.live
@pytest.mark.parametrize(("source", "variant"), truth.all_cases())
def test_true_flag_is_first(source: Path, variant: str, tmp_path: Path) -> None:
    expect = json.loads((source / "expect.json").read_text())
    written = tmp_path / "stderr"
    with written.open("wb") as stderr, spinning(source, expect, variant, tmp_path, stderr) as process:
        assert process.poll() is None, "spin mode ended"
        plan = expect.get("spin", {})
        budget = ["--budget", str(plan["budget"])] if "budget" in plan else []
        ran = flagfinder("spin", "--json", *budget, str(process.pid), timeout=60)
        assert process.poll() is None, "the program did not survive"
    assert ran.returncode == 0, ran.stderr + ran.stdout
    thread = json.loads(ran.stdout)["threads"][0]
    assert thread["class"] == "RepeatedYield"
    truth.assert_true_flag(thread["flags"], expect["flag"], written.read_text(), tmp_path)
