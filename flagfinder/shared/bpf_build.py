# SPDX-License-Identifier: MIT
"""Finds the compiled BPF programs, compiling them at first use where the wheel carries none.

In: a program in ``bpf/``, from the wheel or the checkout. Out: the bytes of its object file, which
``core/bpf`` loads. An object is kept per user, keyed by the hash of all that goes into it.
``FF_CLANG`` names the compiler to use.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from flagfinder import _core
from flagfinder.shared.errors import PermissionDeniedError, UnavailableError
from flagfinder.shared.places import PACKAGE, built, cache_dir

_NEWEST, _OLDEST = 22, 15  # clang 14's BPF backend dies on code that later ones compile
_SECONDS = 60.0
_STILL_WORKS = "Recording, diff and spin need no BPF."
_FLAGS = ["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror"]


def bpf_object(program: str) -> bytes:
    """The object file of ``bpf/<program>.bpf.c``.

    Raises UnavailableError when it isn't compiled yet and can't be.
    """
    sources = _sources()
    flags = [*_FLAGS, f"-I/usr/include/{os.uname().machine}-linux-gnu"]
    digest = hashlib.sha256(" ".join(flags).encode())
    for path in sorted(sources.glob("*.[ch]")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    name = f"bpf-{digest.hexdigest()[:16]}/{program}.bpf.o"
    if there := built(name):
        return there.read_bytes()
    compiled = _compile(sources / f"{program}.bpf.c", flags)
    _keep(cache_dir() / name, compiled)
    return compiled


def loadable_bpf_object(program: str) -> bytes:
    """The same, to be loaded. Where both a compiler and the right to load are missing, the error
    tells both.
    """
    try:
        return bpf_object(program)
    except UnavailableError as error:
        try:
            _core.check_programs()
        except PermissionDeniedError as refused:
            error.found = f"{error.found}; besides, {refused.found}"
            error.fix = f"{error.fix}\n{refused.fix}"
        raise


def find_clang() -> str | None:
    """A clang that is new enough for BPF, the newest first; None when there is none."""
    if given := os.environ.get("FF_CLANG"):
        return given
    for name in [*(f"clang-{version}" for version in range(_NEWEST, _OLDEST - 1, -1)), "clang"]:
        if shutil.which(name) and _version(name) >= _OLDEST:
            return name
    return None


def _version(clang: str) -> int:
    asked = subprocess.run([clang, "--version"], capture_output=True, text=True, timeout=_SECONDS)
    match = re.search(r"clang version (\d+)", asked.stdout)
    return int(match[1]) if match else 0


def _sources() -> Path:
    for candidate in (PACKAGE / "_tracer_sources" / "bpf", PACKAGE.parent / "bpf"):
        if (candidate / "ff_bpf.h").is_file():
            return candidate
    raise UnavailableError(
        "The BPF programs' sources are missing",
        f"no ff_bpf.h in {PACKAGE / '_tracer_sources' / 'bpf'} or {PACKAGE.parent / 'bpf'}",
        "Reinstall with `pip install --force-reinstall flagfinder`.",
        _STILL_WORKS,
    )


def _compile(source: Path, flags: list[str]) -> bytes:
    if (clang := find_clang()) is None:
        raise UnavailableError(
            "The BPF programs can't be compiled",
            f"no clang {_OLDEST} or newer",
            "On Debian: apt-get install --no-install-recommends clang-19 (or set FF_CLANG)",
            _STILL_WORKS,
        )
    with tempfile.TemporaryDirectory(prefix="flagfinder-bpf-") as directory:
        target = Path(directory, "program.o")
        try:
            command = [clang, *flags, "-c", str(source), "-o", str(target)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
            failure = done.stderr.strip() if done.returncode else ""
        except (OSError, subprocess.TimeoutExpired) as error:
            failure = str(error)
        if not failure:
            return target.read_bytes()
    raise UnavailableError(
        "The BPF programs did not compile",
        f"{clang} {source.name}:\n{failure[-2000:]}",
        "Use clang 19 (apt-get install clang-19) and the kernel's headers for programs "
        "(linux-libc-dev).",
        _STILL_WORKS,
    )


def _keep(path: Path, content: bytes) -> None:
    """Compiling takes less than a second: where nothing can be kept it is done each time."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(content)
        Path(file.name).chmod(0o644)
        Path(file.name).replace(path)
