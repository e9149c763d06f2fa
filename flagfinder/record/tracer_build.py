# SPDX-License-Identifier: MIT
"""Finds the tracer (DynamoRIO, client, launcher), building it at first use where the wheel carries
none.

In: the sources in ``pintools/`` and ``include/``, from the wheel or the checkout. Out: a directory
that ``core/record`` hands to the launcher. A build is kept per user, keyed by version and source
hash, so an upgrade never meets a stale client. ``FF_TRACER_DIR`` names a finished build and skips
all of this; ``DYNAMORIO_HOME`` makes the build use that DynamoRIO release instead of its own.
"""

from __future__ import annotations

import collections
import contextlib
import fcntl
import functools
import hashlib
import os
import re
import shutil
import signal
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from flagfinder import _core
from flagfinder.shared.errors import UnavailableError
from flagfinder.shared.places import PACKAGE, built, cache_dir
from flagfinder.shared.record import dataclass

Progress = Callable[[str], None]

# Command to Debian package.
_CLIENT_TOOLS = {"cmake": "cmake", "make": "make", "cc": "gcc", "c++": "g++"}
_DYNAMORIO_TOOLS = {"cargo": "cargo-web", "patch": "patch", "perl": "perl"}
# Seconds; slow machines need a quarter of that. A download that stands still must not hold up the
# first use for ever.
_LONGEST_BUILD = 3600.0
_OLDEST_CARGO = (1, 78)  # the first that reads version 4 of pintools/dynamorio/Cargo.lock
_SECONDS = 60.0
_LAST = ".complete"  # the file that says that a build came to its end
# Left there by builds and tests; no part of the sources.
_SKIPPED = {"__pycache__", "target", "vendor", "build"}


@dataclass(frozen=True)
class Tracer:
    """A built tracer: where it lies, and a key that changes when what it does may change."""

    directory: Path
    key: str

    @functools.cached_property
    def lost_patches(self) -> tuple[str, ...]:
        """flagfinder's patches that its DynamoRIO lacks, by the names of their files in
        ``pintools/dynamorio/``.
        """
        asked = subprocess.run(
            [self.directory / "ff_launch", "--lost-patches"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        return tuple(asked.stdout.split())

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """What recordings made with it must say."""
        if not self.lost_patches:
            return ()
        return (
            "the tracer was built with a DynamoRIO of yours (DYNAMORIO_HOME), which lacks "
            f"{len(self.lost_patches)} patches of flagfinder's ({', '.join(self.lost_patches)}): "
            "the program may behave otherwise than untraced",
        )


def sources_dir() -> Path:
    """The directory that holds ``pintools/`` and ``include/``: in an installed package or the
    checkout.

    Raises UnavailableError when neither has them.
    """
    for candidate in (PACKAGE / "_tracer_sources", PACKAGE.parent):
        if (candidate / "pintools" / "build.sh").is_file():
            return candidate
    raise UnavailableError(
        "The tracer's sources are missing",
        f"no pintools/build.sh in {PACKAGE / '_tracer_sources'} or {PACKAGE.parent}",
        "Reinstall with `pip install --force-reinstall flagfinder`, or set FF_TRACER_DIR to a "
        "built tracer.",
        "Reading and comparing existing traces works without the tracer.",
    )


def source_key(sources: Path) -> str:
    """A hash of every source file's path and content, the version, and what is in the library of
    DYNAMORIO_HOME.
    """
    digest = hashlib.sha256()
    digest.update(_core.VERSION.encode())
    if home := os.environ.get("DYNAMORIO_HOME"):
        # A newer release may come to stand in the same folder; without a library the build says
        # what is wrong.
        library = Path(home, "lib64", "release", "libdynamorio.so")
        digest.update(library.read_bytes() if library.is_file() else home.encode())
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
    there = built(f"tracer-{key}", _LAST)
    if there is not None and not _is_for_us_alone(there):
        return Tracer(there, key)
    root = _writable(cache_dir())
    directory = root / f"tracer-{key}"
    with _locked(root / "tracer-build.lock"):
        if not (directory / _LAST).is_file():
            if there is not None:
                shutil.copytree(there, directory, ignore=lambda _, __: [_LAST], dirs_exist_ok=True)
            else:
                _build(sources, directory, root / "tracer-work", progress)
            (directory / _LAST).touch()
    return Tracer(directory, key)


def _is_for_us_alone(directory: Path) -> bool:
    """Whether what root records could not load the tracer once it runs as another user: the package
    lies in root's home.
    """
    return os.geteuid() == 0 and any(
        not folder.stat().st_mode & stat.S_IXOTH for folder in (directory, *directory.parents)
    )


def missing_tools() -> dict[str, str]:
    """What a build needs and does not find, or finds too old, with the Debian package of each."""
    needed = _CLIENT_TOOLS if os.environ.get("DYNAMORIO_HOME") else _CLIENT_TOOLS | _DYNAMORIO_TOOLS
    missing = {tool: package for tool, package in needed.items() if shutil.which(tool) is None}
    if "cargo" in needed.keys() - missing.keys() and _cargo_version() < _OLDEST_CARGO:
        missing["cargo {}.{} or newer".format(*_OLDEST_CARGO)] = needed["cargo"]
    return missing


def _cargo_version() -> tuple[int, int]:
    try:
        asked = subprocess.run(
            ["cargo", "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return (0, 0)
    version = re.match(r"cargo (\d+)\.(\d+)", asked.stdout)
    return (int(version[1]), int(version[2])) if version else (0, 0)


def cached_tracer() -> Tracer | None:
    """The tracer that would be used, if it needs no building."""
    if given := os.environ.get("FF_TRACER_DIR"):
        return _given_tracer(Path(given))
    key = source_key(sources_dir())
    there = built(f"tracer-{key}", _LAST)
    return Tracer(there, key) if there is not None else None


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


@contextlib.contextmanager
def _ended_after(seconds: float, process: subprocess.Popen[str]) -> Iterator[threading.Event]:
    """Ends a process and all that it started, which are a session, after so long or when the block
    is left.

    The event is set if the time was up.
    """
    late = threading.Event()

    def end() -> None:
        with contextlib.suppress(ChildProcessError, ProcessLookupError):
            # Once it was waited for, the session's number may be another's.
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            os.killpg(process.pid, signal.SIGKILL)

    def end_late() -> None:
        late.set()
        end()

    timer = threading.Timer(seconds, end_late)
    timer.daemon = True
    timer.start()
    try:
        yield late
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    finally:
        timer.cancel()
        timer.join()
        end()
        process.wait()


def _build(sources: Path, directory: Path, work: Path, progress: Progress) -> None:
    """``work`` outlives a build, so that a new client doesn't need a new DynamoRIO."""
    if missing := missing_tools():
        raise UnavailableError(
            "The tracer can't be built",
            f"missing build tools: {', '.join(missing)}",
            f"On Debian: apt-get install {' '.join(sorted(set(missing.values())))}",
            "Reading and comparing existing traces works without the tracer.",
        )
    progress("building the tracer (once for this version, about two minutes)")
    # cmake refuses a build directory that was made from sources elsewhere (a checkout, another
    # install).
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
            start_new_session=True,
        ) as process,
        _ended_after(_LONGEST_BUILD, process) as late,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            log_file.write(line)
            if text := line.strip():
                tail.append(text)
                progress(text)
    if late.is_set():
        raise UnavailableError(
            "The tracer did not build",
            "\n".join(
                [
                    f"pintools/build.sh was not done after {_LONGEST_BUILD / 60:.0f} minutes; its "
                    "last words:",
                    *tail,
                ]
            ),
            f"Try again; what was built is kept. The whole log is {log}. Can cargo reach its "
            "registry?",
            "Reading and comparing existing traces works without the tracer.",
        )
    if process.returncode != 0:
        raise UnavailableError(
            "The tracer did not build",
            "\n".join([f"pintools/build.sh ended with status {process.returncode}", *tail]),
            f"The whole log is {log}. A DynamoRIO release can be used instead: set DYNAMORIO_HOME "
            "to it.",
            "Reading and comparing existing traces works without the tracer.",
        )
    progress(f"tracer built in {directory}")
