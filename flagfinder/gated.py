"""A program that waits behind a gate: everything is attached before its first instruction."""

from __future__ import annotations

import os
import pwd
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

# The shell waits for a byte, then becomes the program: so what observes it sees it from its first instruction.
_GATE = 'read _ <&"$0"; exec "$@"'


class GatedProgram:
    """The program, waiting behind a gate."""

    def __init__(self, process: subprocess.Popen[bytes], gate: int) -> None:
        self.process = process
        self._gate: int | None = gate
        self.released = time.monotonic()

    def release(self) -> None:
        assert self._gate is not None
        self.released = time.monotonic()
        os.write(self._gate, b"\n")
        self.close()

    def close(self) -> None:
        if self._gate is not None:
            os.close(self._gate)
            self._gate = None

    def status(self, reason: str) -> int | None:
        """As a shell gives it; after Ctrl-C the program has had the signal too and gets a moment to end."""
        if reason == "interrupted":
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=1.0)
        code = self.process.poll()
        return None if code is None else code if code >= 0 else 128 - code


@contextmanager
def gated(
    words: Sequence[str], stdout: int | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[GatedProgram | None]:
    """Starts the words as a program behind a gate, under sudo as the calling user; None where there are no words.

    ``stdout`` as for subprocess; ``settings`` join its environment. The program is killed when the block is left by an
    error.
    """
    if not words:
        yield None
        return
    reading, writing = os.pipe()
    try:
        user = _caller()
        user["env"] = {**user.get("env", os.environ), **(settings or {})}
        process = subprocess.Popen(
            ["/bin/sh", "-c", _GATE, str(reading), *words], pass_fds=[reading], stdout=stdout, **user
        )
    finally:
        os.close(reading)
    program = GatedProgram(process, writing)
    try:
        yield program
    except BaseException:
        if process.poll() is None:
            process.kill()
            process.wait()
        raise
    finally:
        program.close()


def _caller() -> dict[str, Any]:
    """Whom the program runs as: under sudo, the calling user."""
    number = os.environ.get("SUDO_UID", "0")
    if os.geteuid() != 0 or not number.isdigit() or number == "0":
        return {}
    entry = pwd.getpwuid(int(number))
    home = {**os.environ, "HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name}
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": groups, "env": home}
