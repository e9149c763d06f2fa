# SPDX-License-Identifier: MIT
"""`doctor`: what it checks, and what its exit code says."""

from __future__ import annotations

import importlib.util
import json
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from harness import needs_root

from flagfinder import _core
from flagfinder.chain import doctor
from flagfinder.chain.doctor import Report
from flagfinder.cli.command import main
from flagfinder.interpreters.which import UnreadableError
from flagfinder.record import tracer_build
from flagfinder.shared import machine, places
from flagfinder.shared.bpf_build import loadable_bpf_object
from flagfinder.shared.errors import PermissionDeniedError, UnavailableError
from flagfinder.shared.machine import Check

ROOT = Path(__file__).resolve().parents[2]
GOOD = Check("a", True, "there", "", "record")
UNKNOWN = Check("b", None, "who knows", "look", "record")
NEEDED = Check("c", False, "missing", "get it", "record")
WIDENS = Check("d", False, "missing", "get it", "record --tracer frida", optional=True)


@pytest.mark.parametrize(
    ("checks", "works"),
    [
        ((GOOD, UNKNOWN), True),
        ((GOOD, WIDENS), True),
        ((GOOD, NEEDED), False),
        ((NEEDED, WIDENS), False),
    ],
)
def test_only_what_a_verb_needs_counts(checks: tuple[Check, ...], works: bool) -> None:
    assert Report(checks).works is works


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH, with the tools that build the tracer; nothing is built."""
    for tool in ("cmake", "make", "cc", "c++", "patch", "perl", "sleep"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or "/bin/true")
    cargo(tmp_path, "cargo 1.85.0 (d73d2caf9 2024-12-31)")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("FF_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("FF_TRACER_DIR", "DYNAMORIO_HOME", "FF_CLANG", "FF_LLDB"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def cargo(folder: Path, answer: str) -> None:
    (folder / "cargo").unlink(missing_ok=True)
    (folder / "cargo").write_text(f"#!/bin/sh\necho '{answer}'\n")
    (folder / "cargo").chmod(0o755)


def found(name: str) -> Check:
    return next(check for check in doctor.examine().checks if check.name == name)


def test_nothing_that_is_not_needed_is_checked(tools: Path) -> None:
    del tools
    names = {check.name for check in doctor.examine().checks}
    assert names == {
        *("ptrace", "other users", "BPF", "breakpoints", "kernel", "BPF programs"),
        *("tracer", "lldb", "gdb", "py-spy", "frida"),
    }


def test_with_all_tools_an_unbuilt_tracer_is_no_failure(tools: Path) -> None:
    del tools
    assert found("tracer").works is None


@pytest.mark.parametrize("tool", ["cmake", "make", "cc", "c++", "patch", "perl", "cargo"])
def test_a_tool_that_would_build_the_tracer_is_missed(tools: Path, tool: str) -> None:
    (tools / tool).unlink()
    check = found("tracer")
    assert check.works is False
    assert tool in check.found
    assert "apt-get install" in check.fix


@pytest.mark.parametrize(
    ("answer", "works"), [("cargo 1.65.0", False), ("cargo 1.78.0 (54d8815d0)", None), ("", False)]
)
def test_cargo_s_version_is_asked(tools: Path, answer: str, works: bool | None) -> None:
    cargo(tools, answer)
    check = found("tracer")
    assert check.works is works
    if works is False:
        assert "cargo 1.78 or newer" in check.found
        assert "cargo-web" in check.fix


def test_dynamorio_of_one_s_own_needs_no_cargo(
    tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DYNAMORIO_HOME", str(tools))
    for tool in ("cargo", "patch", "perl"):
        (tools / tool).unlink()
    assert tracer_build.missing_tools() == {}


def test_a_missing_clang_is_named(tools: Path) -> None:
    check = found("BPF programs")
    assert check.works is False
    assert "no clang 15 or newer" in check.found
    assert "clang-19" in check.fix
    install = tools / "clang"
    install.write_text("#!/bin/sh\necho 'Debian clang version 14.0.6'\n")
    install.chmod(0o755)
    assert "no clang 15 or newer" in found("BPF programs").found


def test_missing_headers_show_in_what_the_compiler_says(tools: Path) -> None:
    compiler = tools / "clang"
    refuses = (
        "case $1 in --version) echo 'clang version 19.1.7';; *) echo 'linux/bpf.h not "
        "found' >&2; exit 1;; esac"
    )
    compiler.write_text(f"#!/bin/sh\n{refuses}\n")
    compiler.chmod(0o755)
    check = found("BPF programs")
    assert "linux/bpf.h not found" in check.found
    assert "linux-libc-dev" in check.fix


def test_bpf_programs_that_the_wheel_carries_need_no_compiler(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tools / "clang"
    tells = "[ $1 != --version ] || { echo clang version 19; exit; }"
    compiles = 'while [ "$1" != -o ]; do shift; done; echo compiled >"$2"'
    compiler.write_text(f"#!/bin/sh\n{tells}\n{compiles}\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("FF_CACHE_DIR", str(tmp_path / "package" / "_built"))
    assert found("BPF programs").works is True
    compiler.unlink()
    monkeypatch.setenv("FF_CACHE_DIR", str(tmp_path / "empty"))
    assert found("BPF programs").works is False
    monkeypatch.setattr(places, "PACKAGE", tmp_path / "package")
    assert found("BPF programs").works is True


def test_optional_tools_are_told_and_change_nothing(
    tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del tools
    monkeypatch.setattr(
        doctor, "find_py_spy", lambda: (_ for _ in ()).throw(UnreadableError("not installed"))
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    for name in ("lldb", "py-spy", "frida"):
        check = found(name)
        assert (check.works, check.optional) == (False, True)
        assert check.fix


def test_other_users_processes_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "has_capability", lambda _name: False)
    monkeypatch.setattr(machine, "yama_scope", lambda: None)
    own, others = (
        check
        for check in machine.check_machine_abilities()
        if check.name in ("ptrace", "other users")
    )
    assert (own.works, others.works, others.optional) == (True, False, True)
    assert "can't be looked at" in others.found
    assert "can't" not in own.found
    assert "+sys_ptrace" in others.fix
    monkeypatch.setattr(machine, "yama_scope", lambda: 1)
    own = machine.check_machine_abilities()[0]
    assert own.works is False
    assert "ptrace_scope is 1" in own.found


@pytest.mark.parametrize(
    ("release", "works"), [("5.15.0-91-generic", True), ("6.18.44", True), ("5.10.0-28", None)]
)
def test_the_kernel_s_version_is_compared(
    monkeypatch: pytest.MonkeyPatch, release: str, works: bool | None
) -> None:
    monkeypatch.setattr(platform, "release", lambda: release)
    check = found("kernel")
    assert check.works is works
    if works is None:
        assert _core.MINIMUM_KERNEL in check.fix


def test_one_number_stands_for_the_oldest_kernel() -> None:
    """README tells the version that errors tell."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"Linux (\d+\.\d+)", readme)[:1] == [_core.MINIMUM_KERNEL]


def test_the_exit_code_and_the_json(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for checks, code in (((GOOD, WIDENS), 0), ((GOOD, NEEDED), 1)):
        monkeypatch.setattr(
            "flagfinder.cli.doctor.examine", lambda *_args, checks=checks: Report(checks)
        )
        assert main(["doctor", "--json"]) == code
        fields = json.loads(capfd.readouterr().out)
        assert fields["works"] is (code == 0)
        assert [check["optional"] for check in fields["checks"]] == [
            check.optional for check in checks
        ]
    assert main(["doctor"]) == 1
    assert [
        line.split()[1] for line in capfd.readouterr().out.splitlines() if "fix:" not in line
    ] == ["yes", "no"]
    monkeypatch.setattr("flagfinder.cli.doctor.examine", lambda *_args: Report((GOOD, WIDENS)))
    assert main(["doctor"]) == 0
    assert "opt " in capfd.readouterr().out


@needs_root("drops root's capabilities")
def test_without_capabilities_the_probes_name_them() -> None:
    """The engine's own probes: what `watch` would say."""
    script = (
        "from flagfinder.chain.doctor import examine; import json; from "
        "flagfinder.shared.machine import as_fields\n"
    )
    script += "print(json.dumps(as_fields(examine().checks)))"
    # Where sudo still helps, and where nothing here does, as in most containers.
    lacks = ["setpriv", "--securebits=+noroot", "--inh-caps=-all", "--ambient-caps=-all"]
    closed = [*lacks, "--bounding-set=-all"]
    for words, advice in ((lacks, "\nsudo setpriv"), (closed, "--cap-add BPF --cap-add PERFMON")):
        ran = subprocess.run(
            [*words, sys.executable, "-P", "-c", script],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        checks = {check["name"]: check for check in json.loads(ran.stdout)}
        assert checks["BPF"]["works"] is False
        assert "CAP_BPF" in checks["BPF"]["found"]
        assert checks["breakpoints"]["works"] is False
        assert "CAP_PERFMON" in checks["breakpoints"]["found"]
        assert advice in checks["BPF"]["fix"]
        assert ("setpriv" in checks["BPF"]["fix"]) == (words is lacks)


@pytest.mark.parametrize("columns", [60, 200])
def test_a_command_in_a_fix_is_a_line_of_its_own(
    columns: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    command = "sudo setpriv " + " ".join(["--ambient-caps +bpf"] * 8) + " flagfinder .."
    fix = f"Give this one command what it needs, and no other one of this user:\n{command}"
    needs = Check("BPF", False, "it lacks CAP_BPF", fix, "watch, events")
    monkeypatch.setattr("flagfinder.cli.doctor.examine", lambda *_args: Report((needs,)))
    assert main(["doctor"]) == 1
    lines = capfd.readouterr().out.splitlines()
    assert lines[-1].strip() == command
    assert all(len(line) <= columns for line in lines[:-1])
    assert "\\u000a" not in "".join(lines)


def test_what_gives_all_missing_rights_is_one_command(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("flagfinder.cli.doctor.examine", lambda *_args: Report((NEEDED,)))
    monkeypatch.setattr(_core, "has_capability", lambda name: name == "CAP_SYS_PTRACE")
    assert main(["doctor"]) == 1
    *_, command = printed = capfd.readouterr().out.splitlines()
    assert "what it needs (CAP_PERFMON, CAP_BPF)" in " ".join(printed)
    assert "+cap_38,+cap_39" in command and "sys_ptrace" not in command


def test_each_rule_is_listed_with_what_it_does(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--rules"]) == 0
    said = " ".join(capfd.readouterr().out.split())
    for name, stage, weight, does in _core.RULES:
        row = f"{name} {weight} {does}" if weight else f"{name} {does}"
        assert stage in said and row.replace("{}", "..") in said


def test_both_a_missing_clang_and_missing_rights_are_told(
    tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `watch` and `events` load their programs."""
    del tools

    def refuse() -> None:
        raise PermissionDeniedError("Loading needs CAP_BPF", "this process lacks CAP_BPF", "sudo")

    monkeypatch.setattr(_core, "check_programs", refuse)
    with pytest.raises(UnavailableError) as told:
        loadable_bpf_object("watch")
    assert "no clang 15 or newer; besides, this process lacks CAP_BPF" in told.value.found
    assert "clang-19" in told.value.fix and told.value.fix.endswith("\nsudo")
