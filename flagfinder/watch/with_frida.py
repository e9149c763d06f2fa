# SPDX-License-Identifier: MIT
"""The backend ``frida``: a program that is started to be watched, from its first instruction on,
without any privilege.

In: a command line; words and instructions. Out: records of hits. Words are watched by debug
registers, which Frida sets on each thread; instructions by hooks. Threads hand their hits over
themselves and go on. The kernel's accesses do not trap. Running processes are never attached to.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import threading
from collections.abc import Sequence
from typing import Any

from flagfinder.record.stalker import library
from flagfinder.shared.environment import handed_on
from flagfinder.shared.errors import (
    FlagfinderError,
    PermissionDeniedError,
    TargetError,
    UnavailableError,
)
from flagfinder.shared.places import shipped
from flagfinder.shared.start import python
from flagfinder.shared.target import caller, check_frida
from flagfinder.watch.ring import Ring
from flagfinder.watch.trapper import Word

_SECONDS = 60.0
_OTHERS = "--backend perf and --backend lldb watch running processes."
_ERRORS: dict[str, type[FlagfinderError]] = {
    "permission": PermissionDeniedError,
    "target": TargetError,
}


def _silent(found: str) -> UnavailableError:
    return UnavailableError(
        "Frida can't watch the program", found, "Try another release of Frida.", _OTHERS
    )


class FridaProgram:
    """A program that has been started and waits, before its ``main``, until it is watched.

    ``output`` is where its stdout goes. Raises TargetError for a program into which no library can
    be loaded, UnavailableError without Frida or when it can't get into the program.
    """

    def __init__(
        self, command: Sequence[str], settings: Sequence[str] = (), output: int | None = None
    ) -> None:
        if caller() is not None:
            raise UnavailableError(
                "--backend frida is not for sudo",
                "it would run the program as root, and needs no privilege",
                "Run flagfinder without sudo.",
                _OTHERS,
            )
        check_frida(command, _OTHERS)
        agent = shipped("frida_agents", "watcher.js")
        self._channel, theirs = socket.socketpair()
        self._ring: Ring | None = None
        self._stopped = self._gone_on = False
        self.over = False
        self.lost = 0
        self.notes: list[str] = []
        with theirs, handed_on(settings) as environment:
            words = python("-m", "flagfinder.watch.frida_control")
            brought = [
                str(theirs.fileno()),
                str(environment),
                os.fspath(library()),
                os.fspath(agent),
            ]
            self.process = subprocess.Popen(
                [*words, *brought, *command], pass_fds=(theirs.fileno(), environment), stdout=output
            )
        self._lines = self._channel.makefile("r")
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._expect("ready")

    @property
    def pid(self) -> int:
        """The program's."""
        return self.process.pid

    def _expect(self, word: str) -> None:
        self._channel.settimeout(_SECONDS)
        try:
            for line in self._lines:
                said: dict[str, Any] = json.loads(line)
                if word in said:
                    self._channel.settimeout(None)
                    return
                if "what" in said:
                    raise _ERRORS.get(said["kind"], UnavailableError)(
                        said["what"], said["found"], said["fix"], _OTHERS
                    )
                self.notes.append(said["note"])
            raise _silent("its control process has ended")
        except TimeoutError:
            raise _silent(f"no answer for {_SECONDS:.0f} s") from None
        except FlagfinderError:
            self.kill()
            raise

    def trap(self, _pid: int, words: list[Word], config: bytes) -> FridaProgram:
        """Watches. A ``Trapper`` from then on; the program goes on with the first ``take``."""
        self._ring = Ring(config)
        wanted = [
            {
                "address": hex(word.address),
                "size": word.size,
                "conditions": "rw" if word.reads else "w",
            }
            for word in words
        ]
        self._channel.sendall(
            json.dumps({"ring": self._ring.path, "words": wanted}).encode() + b"\n"
        )
        self._expect("armed")
        self._listener.start()
        return self

    def _listen(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            for line in self._lines:
                self.notes.append(json.loads(line)["note"])

    def take(self, patience: float) -> bytes:
        """See ``Trapper``."""
        if self.over:
            return b""
        assert self._ring is not None
        if not self._gone_on:
            self._gone_on = True
            self._channel.sendall(b"\n")
        records, self.over = self._ring.wait(lambda: self.process.poll() is not None, patience)
        self.lost = self._ring.lost
        return records

    def stop(self) -> bytes:
        """See ``Trapper``. The program goes on, unwatched."""
        if self._stopped or self._ring is None:
            return b""
        self._channel.shutdown(socket.SHUT_WR)
        self._listener.join(_SECONDS)  # until the agent has taken its hooks away
        rest = self._ring.take(True)
        self.lost, self._stopped, self.over = self._ring.lost, True, True
        self._ring.close()
        return rest

    def __enter__(self) -> FridaProgram:
        return self

    def __exit__(self, *_error: object) -> None:
        """Ends a program that was not let go on."""
        if self._ring is None:
            self.kill()
        self._channel.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
