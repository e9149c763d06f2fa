# SPDX-License-Identifier: MIT
"""The folder in which recorders listen for marks: only root, or only its user, can write to it."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from flagfinder.shared.errors import PermissionDeniedError

_ROOT = Path("/run/flagfinder")
# Where a user has no folder for what runs; anybody may make one of any name there.
_SHARED = Path("/tmp")

_command: int | None = None  # the process that the user started, where a child of it records


def listen_for(command: int) -> None:
    """From now on marks for the process ``command``, which outlives this one, come to this one."""
    global _command  # noqa: PLW0603
    _command = command


def recorder() -> int:
    """The process for which this one takes marks."""
    return _command or os.getpid()


def own_folder() -> Path:
    """Where this user's recorders listen."""
    if os.geteuid() == 0:
        return _ROOT
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "flagfinder"
    return _SHARED / f"flagfinder-{os.geteuid()}"


def folders() -> list[Path]:
    """Where recorders listen that this user may mark."""
    return [_ROOT, own_folder()]


def check_owner(folder: Path) -> None:
    """Raises PermissionDeniedError for a folder that another user made, or can write to;
    FileNotFoundError for none.
    """
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        found = "it is no directory"
    elif status.st_uid != os.geteuid():
        found = f"it belongs to user {status.st_uid}"
    elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        found = f"others may write to it (mode {stat.S_IMODE(status.st_mode):04o})"
    else:
        return
    raise PermissionDeniedError(
        "The folder for marks can't be trusted",
        f"{folder}: {found}",
        f"Remove {folder}, or set XDG_RUNTIME_DIR to a directory of your own.",
    )


def check_folder() -> None:
    """Raises PermissionDeniedError where the user's folder for marks can't be trusted."""
    with contextlib.suppress(OSError):
        check_owner(own_folder())
