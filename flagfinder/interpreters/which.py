# SPDX-License-Identifier: MIT
"""Whether CPython runs in a process: asked of each, so it takes little."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

INTERPRETER = re.compile(r"/(lib)?python[23](\.\d+)?[a-z]*(\.so[.\d]*)?$")


_EXECUTES = ("59", "322")  # execve, execveat


class UnreadableError(Exception):
    """No stack could be read; the text says why, in a few words."""


def runs_python(pid: int) -> bool:
    """Whether an interpreter of CPython's name is mapped; one linked into a program of another name
    has its modules. Not one that waits for the file of a program which it is about to become.
    """
    try:
        return is_python(mapped_files(pid)) and not _becomes_another(pid)
    except OSError:
        return False


def runs_java(pid: int) -> bool:
    """Whether a Java virtual machine is mapped."""
    try:
        return any(file.endswith("/libjvm.so") for file in mapped_files(pid, executable=True))
    except OSError:
        return False


def _becomes_another(pid: int) -> bool:
    call = Path(f"/proc/{pid}/syscall").read_text(encoding="ascii", errors="replace")
    return call.split(" ", 1)[0] in _EXECUTES


def is_python(files: Iterable[str]) -> bool:
    """The same of the files that are mapped."""
    return any(INTERPRETER.search(file) or "/lib-dynload/" in file for file in files)


def mapped_files(pid: int, *, executable: bool = False) -> list[str]:
    """The files that the process has mapped, each once, in the order of their addresses. Raises
    OSError.
    """
    with Path(f"/proc/{pid}/maps").open("rb") as maps:
        # A name may hold every other end of a line.
        texts = (line.rstrip(b"\n").decode(errors="replace") for line in maps)
        lines = (text.split(maxsplit=5) for text in texts)
        named = (words for words in lines if len(words) > 5 and (not executable or "x" in words[1]))
        return list(dict.fromkeys(words[5].removesuffix(" (deleted)") for words in named))
