# SPDX-License-Identifier: MIT
"""Which programs generate code, by their executables."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from flagfinder.record.code_generators import code_generator, runtime_of


def build(
    folder: Path, name: str, *options: str, source: str = "int main(void) { return 0; }\n"
) -> Path:
    text, program = folder / f"{name}.c", folder / name
    text.write_text(source)
    subprocess.run(["cc", "-o", str(program), str(text), *options], check=True, timeout=60)
    return program


def test_a_needed_library_tells(tmp_path: Path) -> None:
    library = tmp_path / "libjvm.so"
    build(
        tmp_path,
        "libjvm.so",
        "-shared",
        "-fPIC",
        "-Wl,-soname,libjvm.so",
        source="int JNI_Something;\n",
    )
    host = build(tmp_path, "host", "-Wl,--no-as-needed", str(library), f"-Wl,-rpath,{tmp_path}")
    assert code_generator([str(host), "--jar"]) == (str(host), "a Java virtual machine")


def test_a_shared_symbol_tells(tmp_path: Path) -> None:
    source = "int luaJIT_setmode(void) { return 0; }\nint main(void) { return 0; }\n"
    assert runtime_of(build(tmp_path, "lua", "-rdynamic", source=source)) == "LuaJIT"
    # Its own, shared with nobody, or the end of another's name.
    assert runtime_of(build(tmp_path, "own", source=source)) is None
    other = source.replace("luaJIT_setmode", "my_luaJIT_setmode")
    assert runtime_of(build(tmp_path, "other", "-rdynamic", source=other)) is None


def test_what_starts_dotnet_programs_names_the_runtime(tmp_path: Path) -> None:
    source = '#include <stdio.h>\nint main(void) { return puts("libhostfxr.so") < 0; }\n'
    assert runtime_of(build(tmp_path, "dotnet", source=source)) == "the .NET runtime"


def test_behind_a_starter_and_in_a_script_s_first_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "int pypy_main_startup(void) { return 0; }\nint main(void) { return 0; }\n"
    build(tmp_path, "fast-python", "-rdynamic", source=source)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert code_generator(["env", "A=1", "fast-python", "x.py"]) == ("fast-python", "PyPy")
    script = tmp_path / "script"
    script.write_text("#!/usr/bin/env fast-python\n")
    script.chmod(0o755)
    assert code_generator([str(script)]) == ("fast-python", "PyPy")


@pytest.mark.parametrize(
    "content", [b"", b"#!/nowhere\n", b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" + bytes(100), b"text"]
)
def test_what_is_no_program_generates_none(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    file.chmod(0o755)
    assert code_generator([str(file), "nowhere", ""]) is None


def test_scripts_that_name_each_other_end(tmp_path: Path) -> None:
    scripts = [tmp_path / "one", tmp_path / "other"]
    for script, interpreter in zip(scripts, reversed(scripts), strict=True):
        script.write_text(f"#!{interpreter}\n")
        script.chmod(0o755)
    assert code_generator([str(scripts[0])]) is None
