# SPDX-License-Identifier: MIT
"""A program that waits behind a gate: everything is attached before its first instruction."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from flagfinder.shared.environment import target_environment, target_user

_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4  # linux/prctl.h
_libc = ctypes.CDLL(None, use_errno=True)

# The shell waits for a byte, then becomes the program: so what observes it sees it from its first
# instruction.
_GATE = ("/bin/sh", "-c", 'read _ <&"$0"; exec "$@"')
# POSIX shells need not read descriptors above 9 (2.7). Python ignores two signals, which a program
# would inherit.
_WIDE_GATE = (
    *(sys.executable, "-I", "-S", "-c"),
    "import os, signal, sys\n"
    "signal.signal(signal.SIGPIPE, signal.SIG_DFL)\n"
    "signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
    "os.read(int(sys.argv[1]), 1)\n"
    "os.execvp(sys.argv[2], sys.argv[2:])",
)
# `env` takes a program with a "=" in its name for a setting.
_UNCHANGED = ("nice", "-n", "0")


class GatedProgram:
    """The program, waiting behind a gate."""

    def __init__(self, process: subprocess.Popen[bytes], gate: int) -> None:
        self.process = process
        self._gate: int | None = gate
        self.goes_on = False
        self.released = time.monotonic()

    def release(self) -> None:
        assert self._gate is not None
        self.released = time.monotonic()
        os.write(self._gate, b"\n")
        self.close()

    def let_go(self) -> None:
        """Whatever happens to this command, the program is left alone from now on."""
        self.release()
        self.goes_on = True

    def close(self) -> None:
        if self._gate is not None:
            os.close(self._gate)
            self._gate = None

    def status(self, reason: str) -> int | None:
        """As a shell gives it; after Ctrl-C the program has had the signal too and gets a moment to
        end.
        """
        if reason == "interrupted":
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=1.0)
        code = self.process.poll()
        return None if code is None else code if code >= 0 else 128 - code


@contextmanager
def gated(
    words: Sequence[str],
    stdout: int | None = None,
    settings: Sequence[str] = (),
    *,
    one_exec: bool = False,
) -> Iterator[GatedProgram | None]:
    """Starts the words as a program behind a gate, under sudo as the calling user; None where there
    are no words.

    ``stdout`` as for subprocess; ``settings``, NAME=VALUE each, join its environment. ``one_exec``:
    the gate's first exec is the program's, which then sees what its shell sets, too. The program is
    killed when the block is left by an error, unless it was let go.
    """
    if not words:
        yield None
        return
    user, identity = target_user()
    entries = target_environment([*identity, *settings])
    start: list[str | bytes] = list(words)
    if one_exec:
        user["env"] = dict(entry.split(b"=", 1) for entry in entries if b"=" in entry)
    else:
        # Not this process's own, nor what a shell adds: `env` gives the program these and no
        # others.
        start = ["env", "-i", *entries, *(_UNCHANGED if "=" in words[0] else ()), *words]
    reading, writing = os.pipe()
    try:
        _keep_capabilities_here()
        gate = _GATE if reading < 10 else _WIDE_GATE
        process = subprocess.Popen(
            [*gate, str(reading), *start], pass_fds=[reading], stdout=stdout, **user
        )
    finally:
        os.close(reading)
    program = GatedProgram(process, writing)
    try:
        yield program
    except BaseException:
        if not program.goes_on and process.poll() is None:
            process.kill()
            process.wait()
        raise
    finally:
        program.close()


def _keep_capabilities_here() -> None:
    """Capabilities that were given to this command only (``setpriv --ambient-caps``) do not go to
    what it starts.
    """
    _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
