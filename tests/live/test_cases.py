"""Real programs recorded in both modes and diffed; expect.json beside each holds the truth. FF_REPEAT=N repeats."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import driver
import pytest
from harness import announced_flags, assert_consistent, diff, leaves, live_or_skip, run

CASES = Path(__file__).parent / "cases"
SPINNING = ["--stop-when-spinning", "2", "--then", "kill"]
REPEAT = int(os.environ.get("FF_REPEAT", "1"))


def all_cases() -> list[Any]:
    found = []
    for path in sorted(CASES.glob("*/expect.json")):
        for variant in ["plain", *json.loads(path.read_text()).get("variants", {})]:
            found += [pytest.param(path.parent, variant, id=f"{path.parent.name}-{variant}-{n}") for n in range(REPEAT)]
    return found


def record_case(source: Path, expect: dict[str, Any], variant: str, work: Path) -> tuple[Path, Path, str]:
    """Builds, records normal and spin; the two traces and what the spin run wrote to stderr."""
    for command in expect.get("build", []):
        words = [word.format(src=source) for word in command]
        if shutil.which(words[0]) is None:
            live_or_skip(f"{words[0]} is not installed")
        built = run(words, timeout=300, cwd=work, env=expect.get("build_environment"))
        assert built.returncode == 0, built.stderr
    normal, spin = work / "normal.trace", work / "spin.trace"
    if expect.get("driver") == "haproxy":
        if shutil.which("haproxy") is None or shutil.which("curl") is None:
            live_or_skip("haproxy or curl is not installed")
        driver.haproxy(normal, source, work / "run-normal", False, [])
        _, error = driver.haproxy(spin, source, work / "run-spin", True, SPINNING)
        return normal, spin, error
    words = expect["command"] if variant == "plain" else expect["variants"][variant]
    command = [word.format(src=source) for word in words]
    if not command[0].startswith("./") and shutil.which(command[0]) is None:
        live_or_skip(f"{command[0]} is not installed")
    env = expect.get("environment", {})
    code, error = driver.fed(normal, command, [], work, expect["normal"], env)
    assert code == 0 or "kill_after" in expect["normal"], f"the normal run ended with {code}: {error}"
    # A program with a busy thread looks as if it were spinning from its start: its case says how to stop.
    stop = expect["spin"].get("options", SPINNING)
    _, error = driver.fed(spin, command, stop, work, expect["spin"], env)
    return normal, spin, error


def symbol_offset(image: str, symbol: str, work: Path) -> int:
    """Where a symbol lies in its module, from its symbol tables."""
    for table in (["nm"], ["nm", "-D"]):
        listed = run([*table, image], timeout=60, cwd=work).stdout
        found = re.search(rf"^([0-9a-f]+) \w {re.escape(symbol)}$", listed, re.M)
        if found:
            return int(found[1], 16)
    raise AssertionError(f"{image} has no symbol {symbol}")


@pytest.mark.live
@pytest.mark.parametrize(("source", "variant"), all_cases())
def test_true_flag_is_first(source: Path, variant: str, tracer: None, tmp_path: Path) -> None:  # noqa: ARG001
    expect = json.loads((source / "expect.json").read_text())
    normal, spin, error = record_case(source, expect, variant, tmp_path)
    for trace in (normal, spin):
        assert_consistent(trace)
    result = diff(normal, spin)
    for trace in (normal, spin):
        trace.unlink()
    assert result["verdict"] in expect["verdict"].split("|"), result["reason"]
    flag, truth = result["flags"][0], expect["flag"]
    named = [(f["rank"], f["name"], f["kind"], f["module"], f["offset"]) for f in result["flags"]]
    assert flag["rank"] == 1 and flag["kind"] == truth["kind"], named
    if "size" in truth:
        assert flag["size"] == truth["size"], named
    if truth.get("announced"):
        # The program printed where the word it waits for lies; the last line is that of the wait that hangs.
        assert (int(flag["address"]["spin"], 16), flag["size"]) == announced_flags(error)[-1], named
    if "name" in truth:
        assert flag["name"].startswith(truth["name"]), named
    if "address_of" in truth:
        # A fixed-address program (Go) has its link-time address; offsets are relative to where the module begins.
        assert int(flag["offset"], 16) == symbol_offset(truth["address_in"], truth["address_of"], tmp_path), named
    if "module" in truth:
        assert Path(flag["module"]).name == truth["module"]
    if "value" in truth:
        mask = int(truth.get("value_mask", "0xffffffffffffffff"), 16)
        assert int(flag["value"]["spin"], 16) & mask == truth["value"]
    if "multiple_of" in truth:
        assert int(flag["value"]["spin"], 16) % truth["multiple_of"] == 0
    if "reader_module" in truth:
        assert any(Path(r["module"]).name.startswith(truth["reader_module"]) for r in flag["readers"]), flag["readers"]
    if "writer_module" in truth:
        writers = [w for w in flag["writers"] if w["run"] == "normal"]
        assert any(Path(w["code"]["module"]).name.startswith(truth["writer_module"]) for w in writers), writers
    for value in truth.get("exit_not", []):
        assert not leaves(flag["exit_when"], value), flag["exit_when"]
