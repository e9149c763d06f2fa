# SPDX-License-Identifier: MIT
"""Core files that systemd keeps (systemd-coredump), fetched by its own coredumpctl."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from flagfinder.shared.errors import UnavailableError

LATEST = "latest"
# PATH may be another user's, so that root takes none from there.
_FOLDERS = ("/usr/bin", "/bin", "/usr/local/bin")


@contextlib.contextmanager
def fetched(which: str) -> Iterator[Path]:
    """The core file of the process that had the id ``which``, or of the last one that died; kept
    while the context lasts, in a folder that only this user may read. Raises UnavailableError
    without coredumpctl, and where it has no such core.
    """
    with tempfile.TemporaryDirectory(prefix="flagfinder-core-") as folder:
        core = Path(folder) / f"core.{which}"
        match = [] if which == LATEST else [which]
        command = [_coredumpctl(), "--quiet", "--no-pager", f"--output={core}", "dump", *match]
        ran = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        if ran.returncode or not core.exists():
            said = ran.stderr.decode(errors="replace").strip().splitlines()
            raise UnavailableError(
                f"There is no core of process {which}" if match else "There is no core",
                said[-1] if said else f"coredumpctl ended with {ran.returncode}",
                "`coredumpctl list` shows those that are kept; of other users only root's sees "
                "them.",
                "flagfinder why --core FILE takes any core file.",
            )
        yield core


def _coredumpctl() -> str:
    path = os.pathsep.join(_FOLDERS) if os.geteuid() == 0 else None
    found = shutil.which("coredumpctl", path=path)
    if found is None:
        raise UnavailableError(
            "Cores can't be asked for by process",
            "coredumpctl is not installed",
            "Install systemd-coredump: it keeps the cores of what dies from then on.",
            "flagfinder why --core FILE takes any core file.",
        )
    return found
