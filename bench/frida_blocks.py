# SPDX-License-Identifier: MIT
"""Runs a program with Frida Stalker's own block recording on every thread: frida_blocks.py PROGRAM
ARGS.

A thread is followed from its start routine on (the first from ``main``): right after a spawn Frida
sees no threads. The recorded events are dropped where they arrive, in Frida's favour.
Exits with 3 if none arrived: with 17.9.1 a first thread is not followed.
"""

from __future__ import annotations

import shutil
import sys
import threading
from typing import Any

import frida

_AGENT = """
Stalker.queueCapacity = 1 << 20;
Stalker.queueDrainInterval = 50;
let seen = 0;
function follow() {
  Stalker.follow(Process.getCurrentThreadId(), {
    events: { block: true },
    onReceive(events) { seen += events.byteLength; },
  });
}
const libc = Process.getModuleByName('libc.so.6');
// It has two versions, and hooks of `main` itself need its address: its first argument.
const isStart = (one) => one.name.startsWith('__libc_start_main');
for (const start of libc.enumerateExports().filter(isStart)) {
  Interceptor.attach(start.address, {
    onEnter(args) { Interceptor.attach(args[0], { onEnter: follow }); },
  });
}
const routines = new Set();
Interceptor.attach(libc.getExportByName('pthread_create'), {
  onEnter(args) {
    if (!routines.has(args[2].toString())) {
      routines.add(args[2].toString());
      Interceptor.attach(args[2], { onEnter: follow });
    }
  },
});
setInterval(() => send(seen), 200);
"""


def main() -> int:
    """Spawns, follows, waits for the end; prints on stderr how many bytes of events arrived."""
    program = shutil.which(sys.argv[1]) or sys.argv[1]
    device = frida.get_local_device()
    pid = device.spawn([program, *sys.argv[2:]], stdio="inherit")
    ended = threading.Event()
    received = [0]

    def on_message(message: Any, _data: object) -> None:
        if message["type"] == "send":
            received.append(message["payload"])
        else:
            print(message.get("description"), file=sys.stderr)

    try:
        session = device.attach(pid)
        session.on("detached", lambda *_reason: ended.set())
        script = session.create_script(_AGENT)
        script.on("message", on_message)
        script.load()
        device.resume(pid)
        ended.wait()
    finally:
        if not ended.is_set():
            device.kill(pid)
    print(f"at least {received[-1]} bytes of events", file=sys.stderr)
    return 0 if received[-1] else 3


if __name__ == "__main__":
    sys.exit(main())
