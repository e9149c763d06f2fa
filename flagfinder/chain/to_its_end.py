# SPDX-License-Identifier: MIT
"""Recordings that come to their end on a file system that does not answer."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from flagfinder import _core
from flagfinder.live.apart import LeftBehind, Post, outlive
from flagfinder.record import record as recorder
from flagfinder.record.recorder import Progress, Recording, RecordOptions
from flagfinder.shared.errors import UnavailableError

T = TypeVar("T")


def record(
    command: Sequence[str],
    output: str | os.PathLike[str],
    options: RecordOptions | None = None,
    *,
    announce: Callable[[str], None] = lambda _text: None,
    progress: Callable[[Progress], None] | None = None,
) -> Recording:
    chosen = options or RecordOptions()

    def work(post: Post) -> Recording:
        shown = post if progress is not None else None
        return recorder.record(command, output, chosen, announce=post, progress=shown)

    def hear(what: object) -> None:
        if isinstance(what, str):
            announce(what)
        elif progress is not None and isinstance(what, Progress):
            progress(what)

    named = [os.fspath(output), *command[:1]]
    return to_its_end(work, chosen.stop_after, named, chosen.then == "kill", hear)


record.__doc__ = recorder.record.__doc__


def to_its_end(
    work: Callable[[Post], T],
    limit: float | None,
    named: Sequence[str | Path],
    is_ended: bool,
    hear: Callable[[object], None] = lambda _: None,
) -> T:
    """What ``work`` returns, which records and uses files of these names; ``hear`` is called with
    what it posts. It ends where a file system does not answer, too: after ``limit`` seconds, or
    when a signal asks for that. Programs that it has started are ended then, if ``is_ended``.

    Blind spot: of a program with threads none can be left behind, and it waits.
    """
    if not _core.servers_may_be_silent() or len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208
        return work(hear)
    try:
        return outlive(work, limit, signal.SIGKILL if is_ended else None, hear)
    except LeftBehind as left:
        files = [str(name) for name in (*named, Path.cwd()) if "/" in str(name)]
        silent = map(_core.silence_of, files)
        found = next((one for one in silent if one is not None), left.because)
        raise UnavailableError(
            "The recording could not be brought to its end",
            f"{found}; {left.where}",
            "Such a file system needs its server: `umount -f` or `umount -l` lets go of it.",
            f"The program {'is killed' if is_ended else 'goes on unrecorded'}, if it had begun.",
        ) from None
