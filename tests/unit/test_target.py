# SPDX-License-Identifier: MIT
"""What can't be recorded is refused in words, before anything runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from harness import needs_root

from flagfinder.record.record import check_ranges, record
from flagfinder.record.recorder import RecordOptions
from flagfinder.shared.errors import FlagfinderError, PermissionDeniedError, TargetError, UsageError
from flagfinder.shared.target import find_program


def write_program(path: Path, content: bytes, mode: int = 0o755) -> str:
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


def elf_header(bits: int, machine: int) -> bytes:
    header = bytearray(64)
    header[:4] = b"\x7fELF"
    header[4] = 2 if bits == 64 else 1
    header[18:20] = machine.to_bytes(2, "little")
    return bytes(header)


def assert_four_parts(error: FlagfinderError) -> None:
    assert error.what and error.found and error.fix


def test_a_program_in_path_is_found() -> None:
    assert find_program(["sh", "-c", "true"]).name == "sh"


def test_a_script_is_judged_by_its_interpreter(tmp_path: Path) -> None:
    assert find_program([write_program(tmp_path / "script", b"#!/bin/sh\n")]) == tmp_path / "script"


def test_no_command() -> None:
    with pytest.raises(UsageError) as caught:
        find_program([])
    assert_four_parts(caught.value)


@pytest.mark.parametrize(
    ("content", "mode", "expected", "word"),
    [
        (b"#!/no/such/interpreter\n", 0o755, TargetError, "interpreter"),
        (b"plain text", 0o755, TargetError, "no ELF"),
        (b"", 0o755, TargetError, "no ELF"),
        (elf_header(32, 3), 0o755, TargetError, "32-bit"),
        (elf_header(64, 183), 0o755, TargetError, "machine 183"),
        (elf_header(64, 62), 0o644, PermissionDeniedError, "not executable"),
    ],
    ids=["lost-interpreter", "text", "empty", "i386", "aarch64", "mode"],
)
def test_kinds_that_are_refused(
    tmp_path: Path, content: bytes, mode: int, expected: type[FlagfinderError], word: str
) -> None:
    program = write_program(tmp_path / "program", content, mode)
    with pytest.raises(expected) as caught:
        find_program([program])
    assert_four_parts(caught.value)
    assert word in caught.value.found


@pytest.mark.parametrize("name", ["no-such-program-anywhere", "./no-such-file", "/usr"])
def test_missing(name: str) -> None:
    with pytest.raises(TargetError) as caught:
        find_program([name])
    assert_four_parts(caught.value)


@pytest.mark.parametrize(("mode", "kind"), [(0o4755, "user"), (0o2755, "group")])
def test_a_program_that_gains_rights_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, kind: str
) -> None:
    """Untraced it may run; who owns it may trace it, too."""
    command = [write_program(tmp_path / "program", elf_header(64, 62), mode)]
    assert find_program(command)
    monkeypatch.setattr(os, f"gete{kind[0]}id", lambda: 12345)
    with pytest.raises(PermissionDeniedError) as caught:
        find_program(command)
    assert_four_parts(caught.value)
    assert f"set-{kind}-ID" in caught.value.what
    assert find_program(command, traced=False)


@needs_root("only root makes root's programs")
def test_under_sudo_the_caller_s_rights_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program is run as who called sudo: root's rights help it as little as without sudo."""
    command = [write_program(tmp_path / "program", elf_header(64, 62), 0o4755)]
    monkeypatch.delenv("SUDO_UID", raising=False)
    assert find_program(command)
    monkeypatch.setenv("SUDO_UID", "65534")
    with pytest.raises(PermissionDeniedError) as caught:
        find_program(command)
    assert "env -u SUDO_UID" in caught.value.fix
    monkeypatch.setenv("SUDO_UID", "4294967290")  # no such user: the program runs as root
    assert find_program(command)


@pytest.mark.parametrize(
    "line", ["app+0x10-0x20", "a+b.so+10-FF", "app+0x10", "# app", "", "app+0x0-0xffffffffffffffff"]
)
def test_ranges_of_values(tmp_path: Path, line: str) -> None:
    (tmp_path / "ranges").write_text(f"libc.so.6+0x0-0x1000\n{line}\n")
    check_ranges(tmp_path / "ranges")


@pytest.mark.parametrize(
    "line",
    ["app", "+0x10-0x20", "app+0x20-0x10", "app+0x-0x10", f"{'a' * 128}+0x1", "app+0x1-", "\xff"],
)
def test_ranges_that_the_tracer_would_refuse(tmp_path: Path, line: str) -> None:
    (tmp_path / "ranges").write_text(f"libc.so.6+0x0-0x1000\n{line}\n", encoding="latin-1")
    options = RecordOptions(values_in=tmp_path / "ranges")
    with pytest.raises(UsageError, match="line 2") as caught:
        record(["true"], tmp_path / "x.trace", options)
    assert_four_parts(caught.value)
    with pytest.raises(UsageError, match="No such file"):
        record(["true"], tmp_path / "x.trace", RecordOptions(values_in=tmp_path / "missing"))
    assert not (tmp_path / "x.trace").exists()
