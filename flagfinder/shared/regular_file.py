# SPDX-License-Identifier: MIT
"""Opening files that somebody else names, without the engine: ``debuggers`` puts this text into its
scripts. What a process names is opened by ``_core`` elsewhere.
"""

import ctypes
import errno
import os
import stat
from typing import BinaryIO

# Kinds of file systems (statfs(2)) whose files the kernel makes up: proc, sys, trace, debug,
# security, cgroup, cgroup2, bpf, config. Reading one may take something away, or wait.
_MADE_UP = (
    *(0x9FA0, 0x62656572, 0x74726163, 0x64626720, 0x73636673),
    *(0x27E0EB, 0x63677270, 0xCAFE4A11, 0x62656570),
)


def _is_made_up(handle: int) -> bool:
    facts = (ctypes.c_long * 32)()  # its first number is the kind
    return ctypes.CDLL(None).fstatfs(handle, facts) == 0 and facts[0] in _MADE_UP


def open_regular(path: "str | os.PathLike[str]", follow: bool = True) -> BinaryIO:
    """Opens a regular file to read it; raises OSError for anything else, without ``follow`` also
    for a link.

    A FIFO's or a device's open may block or act (rewind a tape, arm a watchdog), so a handle that
    only names the file comes first. It also keeps anybody from putting another file there between
    the check and the open.
    """
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode) or _is_made_up(handle):
            raise OSError(errno.EINVAL, "no regular file", os.fspath(path))
        return open(f"/proc/self/fd/{handle}", "rb")  # noqa: PTH123  scripts have no Path
    finally:
        os.close(handle)
