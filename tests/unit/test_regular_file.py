# SPDX-License-Identifier: MIT
"""Files that a trace or a process names are opened only if they are regular, without waiting or
acting.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from flagfinder import _core
from flagfinder.interpreters import python_sources
from flagfinder.shared.regular_file import open_regular


@pytest.fixture(autouse=True)
def _soon() -> Iterator[None]:
    """An open that waits ends the test, not the run."""
    signal.alarm(10)
    yield
    signal.alarm(0)


@pytest.fixture(params=["fifo", "device", "socket", "directory"])
def special(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A path at which no regular file is."""
    path = tmp_path / "special.py"
    if request.param == "fifo":
        os.mkfifo(path)
    elif request.param == "device":
        path.symlink_to("/dev/zero")  # its size is 0, and it has no end
    elif request.param == "socket":
        socket.socket(socket.AF_UNIX).bind(os.fspath(path))
    else:
        path.mkdir()
    return path


def test_only_regular_files_are_opened(special: Path) -> None:
    with pytest.raises(OSError, match="no regular file"):
        open_regular(special)


def test_a_writer_of_a_fifo_is_not_let_in(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="no regular file"):
        open_regular(tmp_path / "fifo")
    with pytest.raises(OSError, match="No such device or address"):  # nobody reads it
        os.open(tmp_path / "fifo", os.O_WRONLY | os.O_NONBLOCK)


def test_a_link_to_a_regular_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"text")
    (tmp_path / "link").symlink_to("file")
    with open_regular(tmp_path / "link") as file:
        assert file.read() == b"text"
        assert not os.get_inheritable(file.fileno())


def test_files_that_doctor_looks_at_are_regular(special: Path) -> None:
    assert not _core.has_debug_info(os.fspath(special))


def test_python_sources_are_regular_files(special: Path) -> None:
    why = own_sources().loops(os.fspath(special), "wait", frozenset({1}))
    assert why == f"the source {special} can't be read"


def test_a_large_source_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "large.py"
    source.write_bytes(b"#" * (python_sources._LARGEST_SOURCE + 1))
    os.utime(source, (0, 0))
    why = own_sources().loops(os.fspath(source), "wait", frozenset({1}))
    assert why == f"{source} is too large to be read"


def test_what_the_kernel_makes_up_is_no_regular_file() -> None:
    with pytest.raises(OSError, match="no regular file"):
        open_regular("/proc/self/status")
    why = own_sources().loops("/proc/self/status", "f", frozenset({1}))
    assert why == "the source /proc/self/status can't be read"


def test_a_source_of_very_many_words_is_refused(tmp_path: Path) -> None:
    """Its tree would be a thousand times as large as the text."""
    source = tmp_path / "many.py"
    source.write_bytes(b"a\n" * (python_sources._LARGEST_SOURCE // 2))
    os.utime(source, (0, 0))
    why = own_sources().loops(os.fspath(source), "wait", frozenset({1}))
    assert why == f"{source} is too large to be read"


def own_sources() -> python_sources.Sources:
    return python_sources.Sources.of_process(os.getpid())


@pytest.mark.parametrize("module", ["typing", "argparse", "turtle", "_pydecimal"])
def test_large_sources_of_real_programs_are_read(module: str) -> None:
    found = importlib.util.find_spec(module)
    assert found is not None and found.origin is not None
    content = Path(found.origin).read_bytes()
    tree = own_sources()._parse_content(found.origin, content)
    assert isinstance(tree, ast.Module)
