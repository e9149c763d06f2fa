# SPDX-License-Identifier: MIT
"""Brings Frida's agent into a program: control.py POOL REPORT LIBRARY AGENT PROGRAM ARGS.

This process becomes the program; one beside it does the work. The program starts with LIBRARY
preloaded, which waits until the agent follows its first thread. Needs nothing but Frida: it may run
as another user than flagfinder. The descriptor REPORT gets a line of JSON, {"what", "found", "fix",
"kind"}, when nothing can be recorded, and is closed when the recording is over. The agent stays
until the program ends: Stalker gives no thread back that goes round in blocks it has already
joined.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import mmap
import os
import signal
import socket
import struct
import sys
import threading
from pathlib import Path
from typing import Any

_LOOK = 0.05
# Of struct ff_shm_header.
_RECORDER_PID, _STOP = 48, 80
_PR_SET_PTRACER = 0x59616D61
_PID = struct.Struct("<i")


class Report:
    """What flagfinder is told."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fail(self, what: str, found: str, fix: str, kind: str = "unavailable") -> int:
        """Says why nothing is recorded; returns the status to end with. The reader may be gone."""
        fields = {"what": what, "found": found, "fix": fix, "kind": kind}
        with contextlib.suppress(OSError):
            os.write(self._descriptor, json.dumps(fields).encode() + b"\n")
        return 1

    def close(self) -> None:
        """Closes the report: nothing more follows."""
        os.close(self._descriptor)


class Pool:
    """The words of the shared memory that say whether the recording goes on."""

    def __init__(self, path: str) -> None:
        self.path = path
        with Path(path).open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), mmap.PAGESIZE, prot=mmap.PROT_READ)

    def is_over(self) -> bool:
        """True once the recorder has had enough, or is gone."""
        (recorder,) = struct.unpack_from("<I", self._bytes, _RECORDER_PID)
        return self._bytes[_STOP] != 0 or not Path(f"/proc/{recorder}").exists()


def main() -> int:
    pool, environment, report, library, agent, *program = sys.argv[1:]
    state = Pool(pool)
    pid, gate = start(program, read_environment(int(environment)), library, int(report))
    says = Report(int(report))
    if not gate.recv(1):
        return says.fail(
            "The program ended before it could be recorded",
            "it never loaded the tracer's library",
            "Check that it runs by itself; try --tracer dynamorio.",
            "target",
        )
    return _record(says, state, library, agent, pid, gate)


def read_environment(descriptor: int) -> dict[str, str]:
    with open(descriptor, "rb") as file:
        entries = [os.fsdecode(entry).partition("=") for entry in file.read().split(b"\0")[:-1]]
    return {name: value for name, _, value in entries}


def start(
    program: list[str], environment: dict[str, str], library: str, report: int
) -> tuple[int, socket.socket]:
    """Becomes the program; returns only in a process beside it: the program's id and the socket of
    its gate. The program does not get ``report``.
    """
    pid = os.getpid()
    ours, theirs = socket.socketpair()
    middle = os.fork()
    if middle == 0:
        # Ctrl-C is not for us. Nor is the program to find a child that it never had.
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        theirs.close()
        ours.send(_PID.pack(os.getpid()))
        return pid, ours
    os.waitpid(middle, 0)
    ours.close()
    os.close(report)
    before = environment.get("LD_PRELOAD")
    if before:
        environment["FF_FRIDA_PRELOAD"] = before
    environment["LD_PRELOAD"] = f"{library}:{before}" if before else library
    environment["FF_FRIDA_GATE"] = str(theirs.fileno())
    theirs.set_inheritable(True)
    # Where only a process's parents may trace it, the process beside it may too, as long as that
    # lives.
    (beside,) = _PID.unpack(theirs.recv(_PID.size))
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(beside), 0, 0, 0)
    _restore_signals()
    try:
        os.execvpe(program[0], program, environment)
    except OSError as error:
        print(f"flagfinder: {program[0]!r}: {error.strerror}", file=sys.stderr)
        os._exit(127)


def _restore_signals() -> None:
    """What Python changed for itself. (SIGINT was either handled, which exec resets, or is ignored
    and stays so.)
    """
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)


def _record(
    says: Report, state: Pool, library: str, agent: str, pid: int, gate: socket.socket
) -> int:
    try:
        # An optional package, which another user may not have.
        frida: Any = importlib.import_module("frida")
    except ImportError as error:
        return says.fail("Frida can't be used", str(error), "Try: pip install 'flagfinder[frida]'")
    gone = threading.Event()
    try:
        session = frida.attach(pid)
        session.on("detached", lambda *_reason: gone.set())
        script = session.create_script(Path(agent).read_text(encoding="utf-8"))
        script.load()
        script.exports_sync.start(library, state.path, pid)
    except frida.PermissionDeniedError as error:
        return says.fail(
            "Frida may not trace the program",
            str(error),
            "Record as its user or as root.",
            "permission",
        )
    except Exception as error:
        return says.fail(
            "Frida could not get into the program",
            f"{type(error).__name__}: {error}",
            "Try another release of Frida, or --tracer dynamorio.",
        )
    gate.send(b"\0")
    gate.close()
    # A forked child holds Frida's connection open beyond the program's end.
    while not gone.wait(_LOOK) and not state.is_over() and runs(pid):
        pass
    says.close()
    while not gone.wait(_LOOK) and runs(pid):
        pass
    return 0


def runs(pid: int) -> bool:
    """Whether the program has not ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return text.rpartition(") ")[2][:1] not in ("Z", "X", "")


if __name__ == "__main__":
    # Not through Frida's own shutdown, which waits for a script that waits for a thread.
    os._exit(main())
