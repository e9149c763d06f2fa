# SPDX-License-Identifier: MIT
"""Where what comes with the package lies, and where what is built from it is kept."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent


def cache_dir() -> Path:
    """Where builds and check results are kept.

    ``FF_CACHE_DIR`` if set. For root a system directory, since a target that runs as another user
    (``sudo flagfinder record``) must be able to load the client and can't look into root's home.
    """
    if chosen := os.environ.get("FF_CACHE_DIR"):
        return Path(chosen)
    if os.geteuid() == 0:
        return Path("/var/cache/flagfinder")
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "flagfinder"


def built(name: str, last: str = "") -> Path | None:
    """What was built under this name, a file or a folder that has the file ``last``: a wheel of
    ``make wheel`` carries it, else the first use left it in the cache. None: it is to be built.
    """
    for root in (PACKAGE / "_built", cache_dir()):
        with contextlib.suppress(OSError):  # in a home that this user may not read
            if (root / name / last).is_file():
                return root / name
    return None


def shipped(folder: str, name: str) -> Path:
    """A script that comes with the package, or lies in the checkout."""
    for root in (PACKAGE / "_tracer_sources", PACKAGE.parent):
        path = root / folder / name
        if path.is_file():
            return path
    raise FileNotFoundError(f"{folder}/{name} is not installed")
