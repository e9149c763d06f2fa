# SPDX-License-Identifier: MIT
"""Whether the tracer shows programs what they see untraced, asked once per tracer build and CPU.

DynamoRIO 11.90 loses AVX-512 registers unless it is built with our patch, and a release named by
``DYNAMORIO_HOME`` may not have it: the program then runs on wrong data, silently. So a small
program that fills every vector and mask register, across blocks, calls, signals and threads, runs
untraced and traced, and recording is refused unless both say the same.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from flagfinder.record.recorder import Level, RecordOptions, run_tracer
from flagfinder.record.tracer_build import Tracer
from flagfinder.shared.errors import FlagfinderError, UnavailableError
from flagfinder.shared.helper import ends_with_us
from flagfinder.shared.places import cache_dir
from flagfinder.shared.regular_file import open_regular
from flagfinder.shared.target import caller

_SECONDS = 60.0


def check_canary(tracer: Tracer, announce: Callable[[str], None]) -> None:
    """Returns if the tracer is fit for this machine; raises UnavailableError if it corrupts
    programs.

    A good result is remembered beside the tracer's build; a bad one is asked again each time.
    """
    remembered = cache_dir() / f"canary-{tracer.key}-{_cpu_key()}.json"
    if remembered.is_file():
        return
    announce("checking that traced programs see what they see untraced (once)")
    found = _differences(tracer)
    if found:
        raise UnavailableError(
            "This tracer does not work on this machine: traced programs don't see what they see "
            "untraced",
            found,
            "Unset DYNAMORIO_HOME and FF_TRACER_DIR so that flagfinder builds its own patched "
            "DynamoRIO, or use a DynamoRIO newer than 11.90.",
            "Reading and comparing existing traces works.",
        )
    try:
        remembered.parent.mkdir(parents=True, exist_ok=True)
        remembered.write_text(
            json.dumps({"tracer": str(tracer.directory), "result": "sound"}), encoding="utf-8"
        )
    except OSError as error:
        announce(
            f"the check's result can't be kept in {remembered.parent} ({error.strerror}): it runs "
            "each time"
        )


def _differences(tracer: Tracer) -> str:
    """What the canary sees differently when it is traced; empty if nothing."""
    program = tracer.directory / "ff_canary"
    with tempfile.TemporaryDirectory(prefix="flagfinder-canary-") as directory:
        theirs = _traced_side(Path(directory))
        native = Path(directory, "native.txt")
        _run_untraced(program, native)
        levels: tuple[Level, ...] = ("flow", "values")
        for level in levels:
            traced = theirs / f"{level}.txt"
            command = [os.fspath(program), os.fspath(traced)]
            options = RecordOptions(level=level, stop_after=_SECONDS)
            try:
                recording = run_tracer(command, Path(directory, "canary.trace"), options, tracer)
            except FlagfinderError as error:
                return f"at level {level} the check program can't be recorded: {error}"
            if recording.exit_code != 0:
                return (
                    f"at level {level}: untraced it exits with 0, traced with {recording.exit_code}"
                )
            expected, seen = _lines(native), _lines(traced)
            for line, (good, bad) in enumerate(zip(expected, seen, strict=False), 1):
                if good != bad:
                    return f"at level {level}, line {line}: untraced {good!r}, traced {bad!r}"
            if len(expected) != len(seen):
                return f"at level {level} {len(seen)} of {len(expected)} checks were made"
    return ""


def _traced_side(directory: Path) -> Path:
    """Where the traced program writes. Under sudo it is the calling user's program, so the folder
    is that user's.

    ``directory`` stays root's: nobody else puts links where root writes, or another folder in place
    of this one.
    """
    theirs = directory / "traced"
    theirs.mkdir(mode=0o700)
    user = caller()
    if user is not None:
        directory.chmod(0o711)
        os.chown(theirs, user.pw_uid, user.pw_gid)
    return theirs


def _lines(path: Path) -> list[str]:
    with open_regular(path, follow=False) as file:
        return file.read().decode(errors="replace").splitlines()


def _run_untraced(program: Path, result: Path) -> None:
    try:
        done = subprocess.run(
            [program, result],
            timeout=_SECONDS,
            stdin=subprocess.DEVNULL,
            preexec_fn=ends_with_us(),
        )
        found = f"it ended with status {done.returncode}" if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        found = str(error)
    if found:
        raise UnavailableError(
            "The tracer can't be checked: the check program does not even run untraced",
            found,
            f"Rebuild the tracer: remove {program.parent} and record again.",
            "Reading and comparing existing traces works.",
        )


def _cpu_key() -> str:
    """Names what decides which registers and instructions programs use here."""
    wanted: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        label, _, value = line.partition(":")
        wanted.setdefault(label.strip(), value.strip())
    facts = [wanted.get(label, "") for label in ("vendor_id", "model name", "stepping", "flags")]
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:12]
