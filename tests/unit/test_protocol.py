"""The shared header and its Rust mirror agree, struct by struct and field by field."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "include" / "ff_protocol.h"
TIMEOUT = 600


def rust_layout() -> dict[str, int]:
    """Name -> size of each struct, and name.field -> offset, as Rust sees them."""
    cargo = shutil.which("cargo")
    if cargo is None:
        pytest.skip("cargo is not installed")
    command = [cargo, "run", "--quiet", "-p", "flagfinder-trace", "--example", "protocol_layout"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert run.returncode == 0, run.stderr
    return {name: int(number) for name, number in map(str.split, run.stdout.splitlines())}


def run_c(directory: Path, body: str) -> list[str]:
    """Compiles `body` with the header included and returns what it prints, by line."""
    compiler = shutil.which("cc") or shutil.which("clang-19") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler is installed")
    source = directory / "layout.c"
    lines = ['#include "ff_protocol.h"', "#include <stddef.h>", "#include <stdio.h>"]
    source.write_text("\n".join([*lines, "int main(void) {", body, "return 0; }", ""]))
    program = directory / "layout"
    compile_command = [compiler, "-Wall", "-I", str(HEADER.parent), str(source), "-o", str(program)]
    subprocess.run(compile_command, check=True, timeout=TIMEOUT)
    run = subprocess.run([str(program)], capture_output=True, text=True, timeout=60, check=True)
    return run.stdout.splitlines()


def test_structs_match(tmp_path: Path) -> None:
    rust = rust_layout()
    prints = []
    for name in rust:
        struct, _, field = name.partition(".")
        expression = f"offsetof(struct {struct}, {field})" if field else f"sizeof(struct {struct})"
        prints.append(f'printf("{name} %zu\\n", {expression});')
    c_side = dict(line.split() for line in run_c(tmp_path, "\n".join(prints)))
    assert {name: int(number) for name, number in c_side.items()} == rust


def test_every_struct_of_the_header_is_mirrored() -> None:
    in_header = set(re.findall(r"^struct (ff_\w+) \{", HEADER.read_text(), re.MULTILINE))
    in_rust = {name for name in rust_layout() if "." not in name}
    assert in_header == in_rust


def test_constants_match(tmp_path: Path) -> None:
    rust = (ROOT / "core" / "trace" / "src" / "protocol.rs").read_text()
    pattern = r"pub const (\w+): u(?:8|16|32|64|size) = (0x[0-9a-f_]+|\d+);"
    constants = {name: int(text.replace("_", ""), 0) for name, text in re.findall(pattern, rust)}
    header = HEADER.read_text()
    known = {name: f"FF_{name}" for name in constants if re.search(rf"\bFF_{name}\b", header)}
    assert len(known) > 30
    prints = [f'printf("{name} %llu\\n", (unsigned long long){c_name});' for name, c_name in known.items()]
    c_side = dict(line.split() for line in run_c(tmp_path, "\n".join(prints)))
    assert {name: int(number) for name, number in c_side.items()} == {name: constants[name] for name in known}
    in_header = set(re.findall(r"\bFF_((?:EVENT|META|SLOT|STREAM|CHUNK)_\w+) = \d", header))
    assert in_header <= set(known), "the Rust mirror lacks constants"
