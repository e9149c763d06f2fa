# SPDX-License-Identifier: MIT
"""A traced program sees what it would see untraced."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pool import trace

Program = Callable[..., Path]
LEVELS = ("flow", "values")
FAMILY = ("--follow-children",)
# Each level and each set of options once; all of their pairs are for `make soak`.
ways = pytest.mark.parametrize(
    ("level", "options"),
    [
        pytest.param("flow", (), id="flow-alone"),
        pytest.param("values", FAMILY, id="values-family"),
        pytest.param("flow", FAMILY, id="flow-family", marks=pytest.mark.soak),
        pytest.param("values", (), id="values-alone", marks=pytest.mark.soak),
    ],
)


def _untraced(command: list[str], **popen: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, capture_output=True, timeout=60, **popen)  # type: ignore[call-overload,no-any-return]


def _block_and_ignore() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2, signal.SIGALRM])
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


@pytest.mark.parametrize("level", LEVELS)
def test_sees_itself_unchanged(
    level: str, tracer_dir: Path, program: Program, tmp_path: Path
) -> None:
    target = program("self.c")
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "DYNAMORIO_LIKE": "kept", "EMPTY": ""}
    read_end, write_end = os.pipe()
    popen: dict[str, Any] = {
        "env": env,
        "cwd": tmp_path,
        "pass_fds": (read_end, write_end),
        "preexec_fn": _block_and_ignore,
    }
    expected = _untraced([str(target), "7"], **popen)
    traced = trace(tracer_dir, level, [target, "7"], **popen)
    assert traced.stdout.decode() == expected.stdout.decode()
    assert (traced.stderr, traced.status) == (b"", 7)
    assert list(tmp_path.iterdir()) == [], "files were left in HOME"


@pytest.mark.parametrize(
    ("argument", "status"), [("0", 0), ("255", 255), ("signal", -signal.SIGTERM)]
)
def test_ends_as_untraced(argument: str, status: int, tracer_dir: Path, program: Program) -> None:
    assert trace(tracer_dir, "flow", [program("self.c"), argument]).status == status


@pytest.mark.parametrize("level", LEVELS)
def test_canary(level: str, tracer_dir: Path, tmp_path: Path) -> None:
    canary = tracer_dir / "ff_canary"
    _untraced([str(canary), str(tmp_path / "untraced")])
    assert trace(tracer_dir, level, [canary, tmp_path / "traced"], timeout=120).status == 0
    assert (tmp_path / "traced").read_text() == (tmp_path / "untraced").read_text()


@pytest.mark.parametrize(
    ("source", "what"),
    [
        *(
            ("signals.c", what)
            for what in (
                "timers",
                "woken",
                "interrupted",
                "undisturbed",
                "ignored",
                "newborn",
                "pending",
                "unheeded",
                "handed_on",
                "descriptors",
                "children",
                "trapped",
            )
        ),
        *(("edges.c", what) for what in ("returned", "forks", "closed", "prefetched")),
    ],
)
@ways
def test_edges(
    source: str, what: str, level: str, options: tuple[str, ...], tracer_dir: Path, program: Program
) -> None:
    target = program(source)
    assert _untraced([str(target), what]).stdout == b"ok\n"
    traced = trace(tracer_dir, level, [target, what], *options)
    assert (traced.stdout, traced.stderr, traced.status) == (b"ok\n", b"", 0)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("what", ["rewritten", "aligned"])
def test_generated_code(what: str, level: str, tracer_dir: Path, program: Program) -> None:
    target = program("generated.c")
    assert _untraced([str(target), what]).stdout == b"ok\n"
    traced = trace(tracer_dir, level, [target, what])
    assert (traced.stdout, traced.stderr, traced.status) == (b"ok\n", b"", 0)


@pytest.mark.parametrize(
    "what", ["threads", "exit_group", "fork", "spawn", "vfork", "exec", "close_range", "signals"]
)
@ways
def test_families(
    what: str, level: str, options: tuple[str, ...], tracer_dir: Path, program: Program
) -> None:
    traced = trace(tracer_dir, level, [program("family.c"), what], *options)
    assert (traced.stdout, traced.stderr) == (b"ok\n", b"")
    assert traced.status == (3 if what == "exit_group" else 0)


@pytest.mark.parametrize(
    "flags", [("-static",), ("-static-pie",), ("-no-pie",), ("-s",)], ids=" ".join
)
@pytest.mark.parametrize("level", LEVELS)
def test_kinds_of_programs(
    level: str, flags: tuple[str, ...], tracer_dir: Path, program: Program
) -> None:
    traced = trace(tracer_dir, level, [program("family.c", *flags), "threads"])
    assert (traced.stdout, traced.status) == (b"ok\n", 0)


def test_script(tracer_dir: Path, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text('#!/bin/sh -e\necho "$0" "$1"\nexit 9\n')
    script.chmod(0o755)
    traced = trace(tracer_dir, "flow", [script, "word"])
    assert (traced.stdout.decode(), traced.status) == (f"{script} word\n", 9)


def test_refusals(tracer_dir: Path, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("hello")
    assert trace(tracer_dir, "flow", ["/no/such/program"]).status == 127
    plain = trace(tracer_dir, "flow", [text])
    assert plain.status == 126
    assert b"fix:" in plain.stderr
    text.chmod(0o755)
    assert trace(tracer_dir, "flow", [text]).status == 126
    narrow = tmp_path / "narrow"
    narrow.write_bytes(b"\x7fELF\x01\x01\x01" + bytes(9) + b"\x02\x00\x03\x00" + bytes(44))
    narrow.chmod(0o755)
    refused = trace(tracer_dir, "flow", [narrow])
    assert refused.status == 126
    assert b"64-bit" in refused.stderr
