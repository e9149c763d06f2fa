# SPDX-License-Identifier: MIT
"""Files of /proc that hold names: no name passes for a line."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from pathlib import Path

from flagfinder.interpreters.process_image import Live
from flagfinder.interpreters.py_spy import _tids
from flagfinder.interpreters.which import mapped_files
from flagfinder.live.patient import status_of

_SET_NAME = 15


def test_a_thread_s_name_is_no_field_of_its_status() -> None:
    named, over = threading.Event(), threading.Event()

    def thread() -> None:
        ctypes.CDLL(None).prctl(_SET_NAME, b"\rNSpid:\tx")
        named.set()
        over.wait()

    born = threading.Thread(target=thread)
    born.start()
    try:
        assert named.wait(10)
        own, other = os.getpid(), born.native_id
        assert other is not None
        threads = [int(task.name) for task in Path("/proc/self/task").iterdir()]
        assert _tids(own) == {tid: tid for tid in threads}
        assert status_of(other)["Tgid"] == str(own)
        assert not any(field.startswith("\r") for field in status_of(other))
    finally:
        over.set()
        born.join()


def test_a_file_s_name_is_no_mapping(tmp_path: Path) -> None:
    path = tmp_path / "a\r1000-2000 rw-p 0 00:00 0 b"
    path.write_bytes(bytes(4096))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ):
        assert os.fspath(path) in mapped_files(os.getpid())
        regions = Live(os.getpid()).regions()
    assert os.fspath(path) in [region[4] for region in regions]
    assert (0x1000, 0x2000) not in [region[:2] for region in regions]
