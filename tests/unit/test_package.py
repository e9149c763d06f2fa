# SPDX-License-Identifier: MIT
"""What `pip install` and the source archive carry, and the licences of it all."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from harness import ROOT

import flagfinder
from flagfinder import _core
from flagfinder.cli.common import VERBS

SHIPPED = ("flagfinder-bindings", "flagfinder-frida-tracer")
# A build leaves files in such places, which are no part of the sources.
STRAY = (
    "pintools/build/left.c",
    "pintools/dynamorio/target/left.rs",
    "frida_agents/tracer/target/left.rs",
)
HOOKS = ("build_sdist", "prepare_metadata_for_build_wheel")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the files under version control, in which builds and tests have left others."""
    copy = tmp_path_factory.mktemp("checkout")
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True
    ).stdout
    for name in names.decode().split("\0"):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    for name in (*STRAY, "build/lib.of-another/kept", "build/bdist.of-another/kept"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text("left")
    return copy


@pytest.fixture(scope="module")
def built(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a source archive and of a wheel's metadata."""
    output = tmp_path_factory.mktemp("built")
    for hook in HOOKS:
        code = f"import sys; from setuptools import build_meta; build_meta.{hook}(sys.argv[1])"
        ran = subprocess.run(
            [sys.executable, "-c", code, str(output)], cwd=checkout, capture_output=True, text=True
        )
        assert ran.returncode == 0, ran.stderr
    return output


def test_the_source_archive_has_all_sources_and_nothing_that_a_build_left(
    built: Path, checkout: Path
) -> None:
    archive = next(built.glob("*.tar.gz"))
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    assert {
        "LICENSE",
        "THIRD-PARTY.txt",
        "bpf/events.bpf.c",
        "pintools/build.sh",
        "include/ff_protocol.h",
    } <= names
    tracked = {
        path
        for path in names
        if path.startswith(("pintools/", "frida_agents/", "bpf/", "include/"))
    }
    parts = ("pintools", "frida_agents", "bpf", "include")
    files = (path for part in parts for path in (checkout / part).rglob("*") if path.is_file())
    expected = {str(path.relative_to(checkout)) for path in files} - set(STRAY)
    assert {name for name in tracked if (checkout / name).is_file()} == expected


def test_a_wheel_carries_the_licences(built: Path) -> None:
    info = next(built.glob("*.dist-info"))
    for name in ("LICENSE", "THIRD-PARTY.txt"):
        assert (info / "licenses" / name).read_text() == (ROOT / name).read_text()
    assert "License-Expression: MIT" in (info / "METADATA").read_text()


def test_a_build_leaves_the_build_directory_alone(checkout: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_py"], cwd=checkout, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    kept = sorted(
        str(path.relative_to(checkout))
        for path in (checkout / "build").rglob("*")
        if path.is_file()
    )
    assert kept == ["build/bdist.of-another/kept", "build/lib.of-another/kept"]


def test_the_notices_name_every_crate_that_is_linked() -> None:
    """Independent of the script that writes the notices: what cargo says is in the shared
    objects.
    """
    packages = [word for name in SHIPPED for word in ("-p", name)]
    tree = [
        "cargo",
        "tree",
        "--locked",
        "--edges",
        "normal,no-proc-macro",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ]
    done = subprocess.run(
        [*tree, *packages], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    crates = {
        tuple(line.split()[:2]) for line in done.stdout.splitlines() if line and "(/" not in line
    }
    notices = set((ROOT / "THIRD-PARTY.txt").read_text().splitlines())
    missing = {f"{name} {version.removeprefix('v')}" for name, version in crates} - notices
    assert len(crates) > 50
    assert not missing, "run .ci/third-party"


def test_the_notices_hold_dynamorio_s_licence() -> None:
    notices = (ROOT / "THIRD-PARTY.txt").read_text()
    assert "DynamoRIO, in the tracer and in pintools/dynamorio/*.patch" in notices
    assert "Primary DynamoRIO License: BSD" in notices


def test_patches_quote_little_of_dynamorio() -> None:
    """Lines of theirs: context, and what is taken out."""
    patches = list((ROOT / "pintools/dynamorio").glob("*.patch"))
    quoted = 0
    for patch in patches:
        body = patch.read_text().partition("\n--- a/")[2]
        quoted += sum(
            line.startswith((" ", "-")) and not line.startswith("--- ")
            for line in body.splitlines()
        )
    assert quoted < 12 * len(patches)


def test_metadata_of_every_crate_says_the_licence() -> None:
    metadata = ["cargo", "metadata", "--no-deps", "--locked", "--format-version", "1"]
    done = subprocess.run(metadata, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    licences = {
        package["name"]: package["license"] for package in json.loads(done.stdout)["packages"]
    }
    assert set(licences.values()) == {"MIT"}


COMMENTS = {
    **dict.fromkeys((".rs", ".js", ".go", ".cpp", ".cc"), "// {}"),
    **dict.fromkeys((".c", ".h"), "/* {} */"),
    **dict.fromkeys((".py", ".pyi", ".sh"), "# {}"),
    ".lua": "-- {}",
}


def sources() -> list[Path]:
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True
    ).stdout
    return [ROOT / name for name in names.decode().split("\0") if name and (ROOT / name).is_file()]


def test_every_source_begins_with_its_licence() -> None:
    """The kernel takes BPF programs with its GPL-only helpers under a licence that is the GPL's
    too.
    """
    seen, without = 0, []
    for source in sources():
        first, second = [*source.read_bytes().split(b"\n", 2), b"", b""][:2]
        is_script = first.startswith(b"#!/")
        comment = COMMENTS.get(source.suffix, "# {}" if is_script else "")
        if not comment or not first:
            continue
        seen += 1
        licence = "MIT OR GPL-2.0-only" if source.parent.name == "bpf" else "MIT"
        expected = comment.format(f"SPDX-License-Identifier: {licence}").encode()
        if (second if is_script else first) != expected:
            without.append(str(source.relative_to(ROOT)))
    assert seen > 500
    assert not without


@pytest.mark.parametrize(
    "source", sorted((ROOT / "bpf").glob("*.bpf.c")), ids=lambda path: path.name
)
def test_a_bpf_program_says_its_licence_to_the_kernel(source: Path) -> None:
    assert 'SECTION("license") = "Dual MIT/GPL"' in source.read_text()


def test_the_manual_and_what_shells_complete_come_from_the_parser(tmp_path: Path) -> None:
    """Made as a build makes them: without what commands import."""
    package = tmp_path / "packages"
    shutil.copytree(Path(flagfinder.__file__).parent, package / "flagfinder")
    needs = ("argparse_manpage", "shtab", "packaging")
    for name in needs:
        found = importlib.util.find_spec(name)
        if found is not None and found.origin is not None:
            place = Path(found.origin)
            if place.name == "__init__.py":
                shutil.copytree(place.parent, package / name)
            else:
                shutil.copy(place, package)
    ran = subprocess.run(
        [sys.executable, "-S", ROOT / "share.py", package, tmp_path], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    manual = (tmp_path / "share/man/man1/flagfinder.1").read_text()
    assert f"flagfinder {_core.VERSION}" in manual
    for verb in VERBS:
        assert f".SS \\fBflagfinder {verb}\\fR".replace("-", "\\-") in manual, verb
    bash = tmp_path / "share/bash-completion/completions/flagfinder"
    script = (
        f"source {bash}; COMP_WORDS=(flagfinder why --sta); COMP_CWORD=2; _shtab_flagfinder; "
        'printf "%s" "${COMPREPLY[@]}"'
    )
    completed = subprocess.run(["bash", "-c", script], capture_output=True, text=True).stdout
    assert completed == "--stacks"


def test_on_musl_the_build_says_what_to_do() -> None:
    code = (
        "import runpy, sys, sysconfig; sys.argv[:] = ['setup.py', '--version']\n"
        "sysconfig.get_config_var = {'HOST_GNU_TYPE': 'x86_64-alpine-linux-musl'}.get\n"
        f"runpy.run_path({str(ROOT / 'setup.py')!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1
    assert "glibc" in done.stderr and "--pid=container:NAME" in done.stderr
