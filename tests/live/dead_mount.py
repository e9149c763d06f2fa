# SPDX-License-Identifier: MIT
"""A FUSE file system whose server answers until SIGUSR1, and then reads requests only; after
SIGUSR2 it answers all but what a file holds; after SIGHUP only those that are interrupted, as the
protocol has it: with EINTR.

Run as a program: MOUNTPOINT FILE. The file is there as ``app``, and one more may be made beside it,
whatever its name. It prints ``mounted`` once it is.
What waits for an answer can't be ended then, until the server itself is: its end frees all.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# Operations of the protocol (linux/fuse.h).
LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ, WRITE, STATFS = 1, 2, 3, 4, 14, 15, 16, 17
RELEASE, FLUSH, INIT, OPENDIR, CREATE, INTERRUPT = 18, 25, 26, 27, 35, 36
ENOENT, EINTR, ENOSYS = 2, 4, 38
ROOT_NODE, FILE_NODE, MADE_NODE = 1, 2, 3
HEADER = struct.Struct("<IIQQ")
HEADER_BYTES = 40
LAZILY = 2  # MNT_DETACH


class DeadMount:
    """The mounted file system, in its user's hands."""

    def __init__(self, server: subprocess.Popen[str], app: Path) -> None:
        self._server = server
        self.server = server.pid
        self.app = app

    def dies(self) -> None:
        """From now on nothing is answered."""
        self._server.send_signal(signal.SIGUSR1)

    def withholds(self) -> None:
        """From now on no read is answered."""
        self._server.send_signal(signal.SIGUSR2)

    def answers_interrupts_only(self) -> None:
        """From now on."""
        self._server.send_signal(signal.SIGHUP)


@contextlib.contextmanager
def mounted(program: Path, folder: Path) -> Iterator[DeadMount]:
    """``program`` on such a file system below ``folder``."""
    point = folder / "mount"
    point.mkdir()
    copy = shutil.copy(program, folder / "served")
    words = [sys.executable, str(Path(__file__).resolve()), str(point), str(copy)]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == "mounted\n", "FUSE can't be mounted"
        yield DeadMount(server, point / "app")
    finally:
        server.kill()
        server.wait(timeout=30)
        ctypes.CDLL(None).umount2(str(point).encode(), LAZILY)


def attributes(node: int, size: int) -> bytes:
    """struct fuse_attr."""
    mode = 0o40755 if node == ROOT_NODE else 0o100755
    blocks = (size + 511) // 512
    return struct.pack("<6Q10I", node, size, blocks, 0, 0, 0, 0, 0, 0, mode, 2, 0, 0, 0, 4096, 0)


def entry(node: int, size: int) -> bytes:
    """struct fuse_entry_out."""
    return struct.pack("<4Q2I", node, *[0] * 5) + attributes(node, size)


def reply(operation: int, node: int, body: bytes, files: dict[int, bytearray]) -> bytes | int:
    """The answer's body, or an error's number."""
    size = len(files.get(node, b""))
    opened = struct.pack("<QII", 1, 0, 0)
    if operation == INIT:
        return struct.pack("<4I2H2I2H8I", 7, 31, 0, 0, 12, 10, 131072, 1, 0, 0, *[0] * 8)
    if operation == LOOKUP:
        found = FILE_NODE if body.split(b"\0")[0] == b"app" else MADE_NODE
        return entry(found, len(files[found])) if found in files else ENOENT
    if operation == CREATE:
        files[MADE_NODE] = bytearray()
        return entry(MADE_NODE, 0) + opened
    if operation == READ:
        _, offset, most = struct.unpack_from("<QQI", body)
        return bytes(files[node][offset : offset + most])
    if operation == WRITE:
        _, offset, count = struct.unpack_from("<QQI", body)
        files[node][offset : offset + count] = body[-count:]
        return struct.pack("<II", count, 0)
    told = struct.pack("<QII", 0, 0, 0) + attributes(node, size)
    answers = {OPEN: opened, OPENDIR: opened, STATFS: bytes(80), RELEASE: b"", FLUSH: b""}
    answers |= {GETATTR: told, SETATTR: told}
    return answers.get(operation, ENOSYS)


def serve(point: str, content: bytes) -> None:
    """Answers until a signal says otherwise."""
    is_dead, withholds, may_interrupt = [], [], []
    signal.signal(signal.SIGUSR1, lambda *_: is_dead.append(True))
    signal.signal(signal.SIGUSR2, lambda *_: withholds.append(True))
    signal.signal(signal.SIGHUP, lambda *_: may_interrupt.append(True))
    files = {FILE_NODE: bytearray(content)}
    channel = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={channel},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"dead", point.encode(), b"fuse.dead", 0, options) != 0:
        sys.exit(os.strerror(ctypes.get_errno()))
    print("mounted", flush=True)
    while True:
        request = os.read(channel, 1 << 20)
        _, operation, unique, node = HEADER.unpack_from(request)
        if is_dead or operation == FORGET or (withholds and operation == READ):
            continue
        if may_interrupt and operation != INTERRUPT:
            continue
        if operation == INTERRUPT:
            (unique,) = struct.unpack_from("<Q", request, HEADER_BYTES)
            body: bytes | int = EINTR
        else:
            body = reply(operation, node, request[HEADER_BYTES:], files)
        error, answer = (-body, b"") if isinstance(body, int) else (0, body)
        with contextlib.suppress(OSError):  # whoever asked is gone
            os.write(channel, struct.pack("<IiQ", 16 + len(answer), error, unique) + answer)


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]).read_bytes())
