# SPDX-License-Identifier: MIT
"""Whatever stands in a file, every verb answers in four parts with exit code 65, or reads what is
sound.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from harness import assert_four_parts, flagfinder
from sizes import in_turn

from .conftest import Pair
from .repaired import damaged, sections
from .verbs import Files

VERBS = [
    ["trace", "info"],
    ["trace", "check"],
    ["trace", "dump"],
]


def assert_refused(words: list[object]) -> str:
    done = flagfinder(*words)
    assert done.returncode == 65, done.stderr
    for part in ("found:", "fix:", "still works:"):
        assert part in done.stderr
    assert "Traceback" not in done.stderr
    assert "panicked" not in done.stderr
    return done.stderr


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
    assert "foreign.trace: a file" in assert_refused(["diff", pair.normal, file]), "which of two"
    assert_refused(["registers", file, "--before-divergence", pair.normal])


def assert_answered(normal: Path, file: Path) -> None:
    """What is still sound is used, or the file is refused; nothing else happens."""
    for words in (
        ["trace", "info", file],
        ["trace", "check", file],
        ["trace", "dump", file],
        ["diff", normal, file],
    ):
        done = flagfinder(*words)
        assert done.returncode in (0, 1, 65), (words, done.stderr)
        assert "Traceback" not in done.stderr
        assert "panicked" not in done.stderr


@pytest.mark.parametrize("seed", in_turn(range(6), of=3))
def test_damage_never_ends_in_a_traceback(tmp_path: Path, pair: Pair, seed: int) -> None:
    """Cut and flipped, which checksums tell."""
    chance = random.Random(seed)
    content = bytearray(pair.spin.read_bytes())
    if seed % 2:
        del content[chance.randrange(len(content)) :]
    else:
        for _ in range(20):
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    file = tmp_path / "damaged.trace"
    file.write_bytes(content)
    assert_answered(pair.normal, file)


@pytest.mark.parametrize("seed", in_turn(range(6), of=3))
def test_damage_behind_right_checksums_never_ends_in_a_traceback(
    tmp_path: Path, pair: Pair, seed: int
) -> None:
    """No checksum tells it: the decoders must."""
    sound = pair.spin.read_bytes()
    file = tmp_path / "damaged.trace"
    file.write_bytes(damaged(sound, random.Random(seed), flips=2 ** (2 * seed)))
    assert_answered(pair.normal, file)


def test_a_section_that_is_unpacked_and_packed_again_is_sound(tmp_path: Path, pair: Pair) -> None:
    """The damage of the test above is all that is wrong with its files."""
    sound = pair.spin.read_bytes()
    file = tmp_path / "repacked.trace"
    file.write_bytes(sound[:64] + b"".join(section.packed() for section in sections(sound)))
    assert flagfinder("trace", "check", file).returncode == 0


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[" * 60_000], ids=["no text", "deep"])
def test_flag_events_that_are_none_are_refused(
    tmp_path: Path, files: Files, content: bytes
) -> None:
    watched = tmp_path / "watched.jsonl"
    watched.write_bytes(content)
    done = flagfinder(
        "graph", "build", files.events, "-o", tmp_path / "x.graph", "--flags", watched
    )
    assert done.returncode == 65
    assert_four_parts(done.stderr, "no line of it is one")
    assert "failed itself" not in done.stderr
