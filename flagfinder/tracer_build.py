"""Finds the tracer (DynamoRIO, client, launcher), building it at first use.

In: the sources in ``pintools/`` and ``include/``, from the wheel or the checkout. Out: a directory that
``core/record`` hands to the launcher. A build is kept per user, keyed by version and source hash, so an
upgrade never meets a stale client. ``FF_TRACER_DIR`` names a finished build and skips all of this;
``DYNAMORIO_HOME`` makes the build use that DynamoRIO release instead of its own.
"""

from __future__ import annotations

import collections
import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from flagfinder import _core
from flagfinder.errors import UnavailableError

Progress = Callable[[str], None]

_PACKAGE = Path(__file__).resolve().parent
# Command to Debian package.
_CLIENT_TOOLS = {"cmake": "cmake", "make": "make", "cc": "gcc", "c++": "g++"}
_DYNAMORIO_TOOLS = {"cargo": "cargo-web", "patch": "patch", "perl": "perl"}
# Left there by builds and tests; no part of the sources.
_SKIPPED = {"__pycache__", "target", "vendor", "build"}


@dataclass(frozen=True)
class Tracer:
    """A built tracer: where it lies, and a key that changes when what it does may change."""

    directory: Path
    key: str


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


def sources_dir() -> Path:
    """The directory that holds ``pintools/`` and ``include/``: in an installed package or the checkout.

    Raises UnavailableError when neither has them.
    """
    for candidate in (_PACKAGE / "_tracer_sources", _PACKAGE.parent):
        if (candidate / "pintools" / "build.sh").is_file():
            return candidate
    raise UnavailableError(
        "The tracer's sources are missing",
        f"no pintools/build.sh in {_PACKAGE / '_tracer_sources'} or {_PACKAGE.parent}",
        "Reinstall with `pip install --force-reinstall flagfinder`, or set FF_TRACER_DIR to a built tracer.",
        "Reading and comparing existing traces works without the tracer.",
    )


def source_key(sources: Path) -> str:
    """A hash of every source file's path and content, the version and the DynamoRIO in use."""
    digest = hashlib.sha256()
    digest.update(_core.VERSION.encode())
    digest.update(os.environ.get("DYNAMORIO_HOME", "").encode())
    for part in ("pintools", "include"):
        for path in sorted((sources / part).rglob("*")):
            relative = path.relative_to(sources)
            if path.is_file() and not _SKIPPED.intersection(relative.parts):
                digest.update(str(relative).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def ensure_tracer(progress: Progress) -> Tracer:
    """The tracer to use, built now if there is none for these sources yet.

    ``progress`` gets one line of text at a time. Raises UnavailableError when it can't be built.
    """
    if given := os.environ.get("FF_TRACER_DIR"):
        return _given_tracer(Path(given))
    sources = sources_dir()
    key = source_key(sources)
    root = _writable(cache_dir())
    directory = root / f"tracer-{key}"
    if not _is_complete(directory):
        with _locked(root / "tracer-build.lock"):
            if not _is_complete(directory):
                _build(sources, directory, root / "tracer-work", progress)
    return Tracer(directory, key)


def cached_tracer() -> Tracer | None:
    """The tracer that would be used, if it needs no building."""
    if given := os.environ.get("FF_TRACER_DIR"):
        return _given_tracer(Path(given))
    key = source_key(sources_dir())
    directory = cache_dir() / f"tracer-{key}"
    return Tracer(directory, key) if _is_complete(directory) else None


def _given_tracer(directory: Path) -> Tracer:
    if not (directory / "ff_launch").is_file():
        raise UnavailableError(
            "FF_TRACER_DIR does not hold a tracer",
            f"no ff_launch in {directory}",
            "Unset FF_TRACER_DIR, or run `pintools/build.sh DIR` and point it at DIR.",
            "Reading and comparing existing traces works without the tracer.",
        )
    digest = hashlib.sha256()
    for path in sorted(directory.iterdir()):
        if path.is_file():
            status = path.stat()
            digest.update(f"{path.name}:{status.st_size}:{status.st_mtime_ns}\n".encode())
    return Tracer(directory, digest.hexdigest()[:16])


def _is_complete(directory: Path) -> bool:
    return (directory / "ff_launch").is_file() and (directory / ".complete").is_file()


def _writable(directory: Path) -> Path:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnavailableError(
            "There is no place to keep the tracer's build",
            f"{directory}: {error.strerror}",
            "Set FF_CACHE_DIR to a writable directory.",
            "Reading and comparing existing traces works without the tracer.",
        ) from error
    return directory


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Two first uses at once must not build into one directory."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _build(sources: Path, directory: Path, work: Path, progress: Progress) -> None:
    """``work`` outlives a build, so that a new client doesn't need a new DynamoRIO."""
    needed = _CLIENT_TOOLS if os.environ.get("DYNAMORIO_HOME") else _CLIENT_TOOLS | _DYNAMORIO_TOOLS
    missing = sorted({package for tool, package in needed.items() if shutil.which(tool) is None})
    if missing:
        raise UnavailableError(
            "The tracer can't be built",
            f"missing build tools (packages {', '.join(missing)})",
            f"On Debian: apt-get install {' '.join(missing)}",
            "Reading and comparing existing traces works without the tracer.",
        )
    progress("building the tracer (once for this version, about two minutes)")
    # cmake refuses a build directory that was made from sources elsewhere (a checkout, another install).
    shutil.rmtree(work / "client", ignore_errors=True)
    log = directory.with_suffix(".log")
    tail: collections.deque[str] = collections.deque(maxlen=8)
    with (
        log.open("w", encoding="utf-8") as log_file,
        subprocess.Popen(
            ["sh", str(sources / "pintools" / "build.sh"), str(directory), str(work)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            log_file.write(line)
            if text := line.strip():
                tail.append(text)
                progress(text)
    if process.returncode != 0:
        raise UnavailableError(
            "The tracer did not build",
            "\n".join([f"pintools/build.sh ended with status {process.returncode}", *tail]),
            f"The whole log is {log}. A DynamoRIO release can be used instead: set DYNAMORIO_HOME to it.",
            "Reading and comparing existing traces works without the tracer.",
        )
    (directory / ".complete").touch()
    progress(f"tracer built in {directory}")
