# SPDX-License-Identifier: MIT
"""The one way to open a file that a trace or a process names. ``debuggers`` puts this text into its
scripts too.
"""

import errno
import os
import stat
from typing import BinaryIO


def open_regular(path: "str | os.PathLike[str]", follow: bool = True) -> BinaryIO:
    """Opens a regular file to read it; raises OSError for anything else, without ``follow`` also
    for a link.

    A FIFO's or a device's open may block or act (rewind a tape, arm a watchdog), so a handle that
    only names the file comes first. It also keeps anybody from putting another file there between
    the check and the open.
    """
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "no regular file", os.fspath(path))
        return open(f"/proc/self/fd/{handle}", "rb")  # noqa: PTH123  scripts have no Path
    finally:
        os.close(handle)
