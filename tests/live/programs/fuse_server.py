# SPDX-License-Identifier: MIT
"""A file system of FUSE with one file, `app`: fuse_server.py MOUNT FILE.

It stops answering once the file MOUNT.silent is there.
"""

import ctypes
import os
import struct
import sys
from pathlib import Path

place, content = sys.argv[1], Path(sys.argv[2]).read_bytes()
silent = Path(place + ".silent")
LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE, FLUSH, INIT = 1, 2, 3, 14, 15, 17, 18, 25, 26
HEADER = 40

device = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
mount = ctypes.CDLL(None, use_errno=True).mount
if mount(b"ff", place.encode(), b"fuse.ff", 0, options) != 0:
    sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")


def attributes(node: int) -> bytes:
    mode, size = (0o40755, 4096) if node == 1 else (0o100755, len(content))
    long = struct.pack("<6Q", node, size, (size + 511) // 512, 0, 0, 0)
    return long + struct.pack("<10I", 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(what: int, node: int, body: bytes) -> bytes | int:
    if what == INIT:
        head = struct.pack("<IIIIHHI", 7, 31, 0, 0, 12, 10, 131072)
        return head + bytes(40)
    if what == LOOKUP:
        found = body.split(b"\0")[0] == b"app"
        return struct.pack("<Q", 2) + bytes(32) + attributes(2) if found else -2
    if what == GETATTR:
        return bytes(16) + attributes(node)
    if what == READ:
        _, at, size = struct.unpack_from("<QQI", body)
        return content[at : at + size]
    return {OPEN: bytes(16), STATFS: bytes(80), RELEASE: b"", FLUSH: b""}.get(what, -38)


print("mounted", flush=True)
while True:
    request = os.read(device, 1 << 20)
    _, what, unique, node = struct.unpack_from("<IIQQ", request)
    if silent.exists() or what == FORGET:
        continue
    told = answer(what, node, request[HEADER:])
    error, body = (told, b"") if isinstance(told, int) else (0, told)
    os.write(device, struct.pack("<IiQ", 16 + len(body), error, unique) + body)
