"""Whatever stands in a file, every verb answers in four parts with exit code 65, or reads what is sound."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from harness import flagfinder

from .conftest import Pair

VERBS = [
    ["trace", "info"],
    ["trace", "check"],
    ["trace", "dump"],
]


def assert_refused(words: list[object]) -> None:
    done = flagfinder(*words)
    assert done.returncode == 65, done.stderr
    for part in ("found:", "fix:", "still works:"):
        assert part in done.stderr
    assert "Traceback" not in done.stderr
    assert "panicked" not in done.stderr


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
@pytest.mark.parametrize(
    "content",
    [b"", b"FFTRACE\n", b"#!/bin/sh\necho hello\n" * 100, bytes(4096), b"FFTRACE\n" + bytes(56)],
    ids=["empty", "magic only", "foreign", "zeros", "no sections"],
)
def test_no_trace(tmp_path: Path, verb: list[str], content: bytes) -> None:
    file = tmp_path / "broken.trace"
    file.write_bytes(content)
    assert_refused([*verb, file])


def test_newer_version(tmp_path: Path, pair: Pair) -> None:
    content = bytearray(pair.spin.read_bytes())
    content[8:16] = (99).to_bytes(4, "little") * 2
    file = tmp_path / "newer.trace"
    file.write_bytes(content)
    assert_refused(["trace", "info", file])
    assert_refused(["diff", pair.normal, file])


def test_diff_refuses_a_foreign_file(tmp_path: Path, pair: Pair) -> None:
    file = tmp_path / "foreign.trace"
    file.write_text("hello")
    assert_refused(["diff", file, pair.spin])
    assert_refused(["diff", pair.normal, file])
    assert_refused(["registers", file, "--before-divergence", pair.normal])


@pytest.mark.parametrize("seed", range(6))
def test_damage_never_ends_in_a_traceback(tmp_path: Path, pair: Pair, seed: int) -> None:
    """Cut and flipped: what is still sound is used, or the file is refused; nothing else happens."""
    chance = random.Random(seed)
    content = bytearray(pair.spin.read_bytes())
    if seed % 2:
        del content[chance.randrange(len(content)) :]
    else:
        for _ in range(20):
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    file = tmp_path / "damaged.trace"
    file.write_bytes(content)
    for words in (["trace", "info", file], ["trace", "check", file], ["diff", pair.normal, file]):
        done = flagfinder(*words)
        assert done.returncode in (0, 1, 65), done.stderr
        assert "Traceback" not in done.stderr
        assert "panicked" not in done.stderr
