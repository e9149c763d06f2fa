# SPDX-License-Identifier: MIT
"""Each shared header and its Rust mirror agree, struct by struct and field by field."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import live_or_skip

from flagfinder.watch.ring import RECORD

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT = 600


@dataclass(frozen=True)
class Shared:
    """A header and where its mirror is."""

    header: Path
    mirror: Path
    example: str
    constants: int  # fewer in both means that the test no longer finds them


PROTOCOLS = [
    Shared(
        ROOT / "include" / "ff_protocol.h",
        ROOT / "core" / "trace" / "src" / "protocol.rs",
        "protocol_layout",
        30,
    ),
    Shared(
        ROOT / "bpf" / "ff_watch.h",
        ROOT / "core" / "watch" / "src" / "protocol.rs",
        "watch_layout",
        11,
    ),
    Shared(
        ROOT / "bpf" / "ff_events.h",
        ROOT / "graph" / "events" / "src" / "protocol.rs",
        "events_layout",
        30,
    ),
]
each_protocol = pytest.mark.parametrize("shared", PROTOCOLS, ids=lambda shared: shared.header.stem)


@functools.cache
def rust_layout(shared: Shared) -> dict[str, int]:
    """Name -> size of each struct, and name.field -> offset, as Rust sees them."""
    cargo = shutil.which("cargo")
    if cargo is None:
        live_or_skip("cargo is not installed")
    # As in the Makefile, which has built it already: another choice of packages gives others
    # features, and builds them once more.
    workspace = ["--workspace", "--exclude", "flagfinder-fuzz"]
    profile = os.environ.get("FF_CARGO_PROFILE", "release")
    command = [
        cargo,
        "build",
        "--quiet",
        "--profile",
        profile,
        "--locked",
        *workspace,
        "--example",
        shared.example,
    ]
    built = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert built.returncode == 0, built.stderr
    target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
    folder = "debug" if profile == "dev" else profile
    program = target / folder / "examples" / shared.example
    run = subprocess.run([program], capture_output=True, text=True, timeout=60, check=True)
    return {name: int(number) for name, number in map(str.split, run.stdout.splitlines())}


def run_c(shared: Shared, directory: Path, body: str) -> list[str]:
    """Compiles `body` with the header included and returns what it prints, by line."""
    compiler = shutil.which("cc") or shutil.which("clang-19") or shutil.which("clang")
    if compiler is None:
        live_or_skip("no C compiler is installed")
    source = directory / "layout.c"
    lines = [f'#include "{shared.header.name}"', "#include <stddef.h>", "#include <stdio.h>"]
    source.write_text("\n".join([*lines, "int main(void) {", body, "return 0; }", ""]))
    program = directory / "layout"
    compile_command = [
        compiler,
        "-Wall",
        "-I",
        str(shared.header.parent),
        str(source),
        "-o",
        str(program),
    ]
    subprocess.run(compile_command, check=True, timeout=TIMEOUT)
    run = subprocess.run([str(program)], capture_output=True, text=True, timeout=60, check=True)
    return run.stdout.splitlines()


@each_protocol
def test_structs_match(shared: Shared, tmp_path: Path) -> None:
    rust = rust_layout(shared)
    prints = []
    for name in rust:
        struct, _, field = name.partition(".")
        expression = f"offsetof(struct {struct}, {field})" if field else f"sizeof(struct {struct})"
        prints.append(f'printf("{name} %zu\\n", {expression});')
    c_side = dict(line.split() for line in run_c(shared, tmp_path, "\n".join(prints)))
    assert {name: int(number) for name, number in c_side.items()} == rust


def test_records_of_a_ring_are_hits() -> None:
    assert rust_layout(PROTOCOLS[1])["ff_watch_hit"] == RECORD


@each_protocol
def test_every_struct_of_the_header_is_mirrored(shared: Shared) -> None:
    in_header = set(re.findall(r"^struct (ff_\w+) \{", shared.header.read_text(), re.MULTILINE))
    in_rust = {name for name in rust_layout(shared) if "." not in name}
    assert in_header == in_rust


@each_protocol
def test_constants_match(shared: Shared, tmp_path: Path) -> None:
    rust = shared.mirror.read_text()
    pattern = r"pub const (\w+): u(?:8|16|32|64|size) = (0x[0-9a-f_]+|\d+);"
    constants = {name: int(text.replace("_", ""), 0) for name, text in re.findall(pattern, rust)}
    header = shared.header.read_text()
    known = {name: f"FF_{name}" for name in constants if re.search(rf"\bFF_{name}\b", header)}
    assert len(known) >= shared.constants
    prints = [
        f'printf("{name} %llu\\n", (unsigned long long){c_name});' for name, c_name in known.items()
    ]
    c_side = dict(line.split() for line in run_c(shared, tmp_path, "\n".join(prints)))
    assert {name: int(number) for name, number in c_side.items()} == {
        name: constants[name] for name in known
    }
    in_header = set(re.findall(r"\bFF_((?:EVENT|META|SLOT|STREAM|CHUNK)_\w+) = \d", header))
    assert in_header <= set(known), "the Rust mirror lacks constants"
