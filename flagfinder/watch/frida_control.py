# SPDX-License-Identifier: MIT
"""Brings Frida's agent into a program to watch: -m flagfinder.watch.frida_control CHANNEL
ENVIRONMENT LIBRARY AGENT PROGRAM ARGS.

This process becomes the program; one beside it does the work. Lines of JSON go through the socket
CHANNEL: ``{"ready": true}`` once the program waits to be watched, ``{"what", "found", "fix",
"kind"}`` if it can't be, ``{"note"}``. Back come the ring and the words, then an empty line, and
the program runs on. Once the socket is closed nothing is watched any more; the agent stays until
the program ends, as Frida's way out is not safe.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from flagfinder.record.stalker.control import Report, read_environment, runs, start

_LOOK = 0.05


def main() -> int:
    descriptor, environment, library, agent, *program = sys.argv[1:]
    pid, gate = start(program, read_environment(int(environment)), library, int(descriptor))
    says = Report(int(descriptor))
    if not gate.recv(1):
        return says.fail(
            "The program ended before it could be watched",
            "it never loaded the agent's library",
            "Check that it runs by itself; watch it with --backend perf or lldb.",
            "target",
        )
    channel = socket.socket(fileno=int(descriptor))
    return _watch(says, channel, library, agent, pid, gate)


def _watch(
    says: Report, channel: socket.socket, library: str, agent: str, pid: int, gate: socket.socket
) -> int:
    gone = threading.Event()
    try:
        frida: Any = importlib.import_module("frida")
        session = frida.attach(pid)
        session.on("detached", lambda *_reason: gone.set())
        script = session.create_script(Path(agent).read_text(encoding="utf-8"))
        script.on("message", lambda message, _data: _hand_on(channel, message))
        script.load()
        _tell(channel, {"ready": True})
        with channel.makefile("r") as lines:
            if asked := lines.readline():
                wanted = json.loads(asked)
                script.exports_sync.start(library, wanted["ring"], wanted["words"], pid)
                _tell(channel, {"armed": True})
                lines.readline()
    except Exception as error:
        is_refused = type(error).__name__ == "PermissionDeniedError"
        return says.fail(
            "Frida can't watch the program",
            f"{type(error).__name__}: {error}",
            "Try another release of Frida, or --backend perf or lldb.",
            "permission" if is_refused else "unavailable",
        )
    with contextlib.suppress(OSError):  # it was killed
        gate.send(b"\0")
    gate.close()
    # A forked child holds Frida's connection open beyond the program's end.
    while not gone.is_set() and runs(pid) and not select.select([channel], [], [], _LOOK)[0]:
        pass
    if not gone.is_set() and runs(pid):
        with contextlib.suppress(Exception):
            script.exports_sync.end()
    channel.close()
    while not gone.wait(_LOOK) and runs(pid):
        pass
    return 0


def _tell(channel: socket.socket, fields: dict[str, object]) -> None:
    """The reader may be gone."""
    with contextlib.suppress(OSError):
        channel.sendall(json.dumps(fields).encode() + b"\n")


def _hand_on(channel: socket.socket, message: dict[str, Any]) -> None:
    if message["type"] == "send":
        _tell(channel, message["payload"])
    else:
        _tell(channel, {"note": f"Frida's agent: {message.get('description', message['type'])}"})


if __name__ == "__main__":
    # Not through Frida's own shutdown, which waits for a script that waits for a thread.
    os._exit(main())
