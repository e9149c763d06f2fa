# SPDX-License-Identifier: MIT
"""Builds the Rust engine as ``flagfinder._core`` and ships the sources of the tracer and of the BPF
programs.

The tracer itself (DynamoRIO, its client and launcher) is not built here: that takes minutes
and a C toolchain, and only recording needs it. ``flagfinder/record/tracer_build.py`` does it at
first use from the sources which ``BuildWithTracerSources`` puts beside the package;
``flagfinder/shared/bpf_build.py`` does the same for BPF. ``.ci/wheel`` adds what they would build.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py
from setuptools.command.install import install
from setuptools_rust import Binding, RustExtension

# .ci/wheel names one that links for old C libraries.
LINKER = ["-C", f"linker={linker}"] if (linker := os.environ.get("FF_LINKER")) else []
ROOT = Path(__file__).resolve().parent
if "musl" in (sysconfig.get_config_var("HOST_GNU_TYPE") or ""):  # Alpine
    raise SystemExit(
        "flagfinder runs with glibc only. It looks at programs of musl from outside: run it on the "
        "machine that hosts the container, or beside it in an image of Debian:\n"
        "docker run -it --pid=container:NAME --cap-add SYS_PTRACE IMAGE flagfinder why 1"
    )
TRACER_SOURCES = ("pintools", "include", "bpf", "lldb_scripts", "frida_agents")


def workspace_version() -> str:
    """The one version number, which the Rust workspace owns."""
    text = (ROOT / "Cargo.toml").read_text(encoding="utf-8")
    match = re.search(r'^version = "([^"]+)"', text, re.MULTILINE)
    if match is None:
        raise SystemExit(
            "Cargo.toml has no workspace version; restore the line [workspace.package] version = "
            "..."
        )
    return match.group(1)


def scratch() -> Path:
    """A directory for this build only.

    In ``build/`` an interrupted build's remains would make the next one fail, and modules since
    deleted would be shipped.
    """
    directory = Path(tempfile.mkdtemp(prefix="flagfinder-build-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


SCRATCH = scratch()


class BuildWithTracerSources(build_py):
    """build_py, plus a copy of the tracer's sources in ``flagfinder/_tracer_sources``."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return  # the package finds the checkout's own pintools/
        target = Path(self.build_lib) / "flagfinder" / "_tracer_sources"
        shutil.rmtree(target, ignore_errors=True)
        for name in TRACER_SOURCES:
            shutil.copytree(
                ROOT / name,
                target / name,
                ignore=shutil.ignore_patterns("__pycache__", "target", "vendor", "build", "*.o"),
            )


class InstallWithPages(install):
    """install, plus the manual page and what shells complete: made from the package as built."""

    def run(self) -> None:
        super().run()
        if self.build_lib is None or self.install_data is None:
            return  # nothing was built
        words = [sys.executable, ROOT / "share.py", self.build_lib, self.install_data]
        subprocess.run(words, check=True)


setup(
    version=workspace_version(),
    packages=find_packages(include=["flagfinder", "flagfinder.*", "flagfinder_pytest"]),
    package_data={
        "flagfinder": ["_core.pyi", "py.typed"],
        "flagfinder.report": ["hang_page.html", "why_page.html"],
    },
    include_package_data=False,
    cmdclass={"build_py": BuildWithTracerSources, "install": InstallWithPages},
    rust_extensions=[
        RustExtension(
            "flagfinder._core",
            path="bindings/Cargo.toml",
            binding=Binding.PyO3,
            py_limited_api=True,
            debug=False,
            args=["--locked"],
            rustc_flags=LINKER,
        ),
        # Loaded into the target by the Frida tracer, not by Python.
        RustExtension(
            "flagfinder._frida_tracer",
            path="frida_agents/tracer/Cargo.toml",
            binding=Binding.NoBinding,
            debug=False,
            args=["--locked"],
            rustc_flags=LINKER,
        ),
    ],
    options={
        "build": {"build_base": str(SCRATCH)},
        "bdist_wheel": {"py_limited_api": "cp310", "bdist_dir": str(SCRATCH / "wheel")},
    },
    zip_safe=False,
)
