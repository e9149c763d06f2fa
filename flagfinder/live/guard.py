# SPDX-License-Identifier: MIT
"""A command that may hang: started, and asked why once it does.

In: a command. Out: its exit status, or what ``why`` found in its tree of processes, which is ended
then. Until the command hangs nothing is done but waiting.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
from collections.abc import Callable, Mapping, Sequence
from errno import EACCES, ENOENT
from pathlib import Path
from typing import NoReturn

from flagfinder import _core
from flagfinder.live.ask_all import ask_all
from flagfinder.live.deadline import TREE_TIMEOUT, note_on
from flagfinder.live.family import Family
from flagfinder.live.idleness import wait
from flagfinder.live.tree import Asked, LeftProcess
from flagfinder.live.why_chain import WhyReport
from flagfinder.shared.environment import target_environment
from flagfinder.shared.errors import FlagfinderError, UsageError
from flagfinder.shared.interruption import forget_waiting, held_back, interruptible
from flagfinder.shared.record import dataclass
from flagfinder.shared.visible import quote_command

EXIT_HUNG = 124  # as of timeout(1)
EXIT_CANNOT_START = 126
EXIT_NOT_FOUND = 127
_UNBEGUN = 2.0  # s for a program that did not begin: its process has guard's own code


@dataclass(frozen=True)
class Hang:
    """What was found while the processes were still there: the most telling report first.

    ``because`` says how the hang was noticed. ``pids`` are the processes, the command's own first.
    """

    pids: tuple[int, ...]
    because: str
    reports: tuple[WhyReport, ...]
    notes: tuple[str, ...]


def guard(
    command: Sequence[str],
    *,
    after: float | None = None,
    idle: float | None = None,
    timeout: float = TREE_TIMEOUT,
    hung: Callable[[Hang], object],
    left: Callable[[list[LeftProcess]], object] = lambda _: None,
) -> int:
    """Runs ``command``; returns its exit status as a shell would, or EXIT_HUNG.

    It hangs when it runs for ``after`` seconds, or when for ``idle`` seconds its processes read and
    wrote nothing and used less than 1 % of a processor. ``hung`` hears why, as far as that was
    found within ``timeout`` seconds; then the tree of processes is ended, by SIGTERM and after 2 s
    by SIGKILL; also where SIGINT, SIGTERM or SIGHUP ends the guard. ``left`` hears of those that
    can't be ended, if there are any. Raises UsageError when it can't be started.
    """
    family = Family()
    # A signal that comes while the command is started waits until its end is taken care of.
    with held_back() as let_in:
        beginning = _Beginning.of(command, let_in)
        process = beginning.process
        found: Asked | None = None
        with interruptible():
            try:
                let_in()
                because = wait(process, after, idle, family.reap)
                if because is None:
                    status = process.wait()
                    beginning.check()
                    return 128 - status if status < 0 else status
                if missing := beginning.missing():
                    because, timeout = because + missing, min(timeout, _UNBEGUN)
                # The command's own process is asked first, and also if it is one that waits to be
                # reaped.
                pids = tuple(dict.fromkeys((process.pid, *family.living())))
                found = _asked(pids, timeout)
                hung(Hang(pids, because, found.reports, found.notes))
            finally:
                # A second signal must not leave the tree alive: the end takes seconds at most.
                with held_back():
                    if process.returncode is None and (remaining := family.end(process)):
                        left(remaining)
                    beginning.close()
                    family.leave()
                    if found is not None:
                        forget_waiting()
    return EXIT_HUNG


def _asked(pids: Sequence[int], timeout: float) -> Asked:
    """What ``ask_all`` answers. Where that fails, as where no process or thread may be started any
    more, the command hangs all the same.
    """
    try:
        return ask_all(pids, timeout)
    except (FlagfinderError, OSError) as failure:
        said = failure.strerror if isinstance(failure, OSError) else failure.found
        return Asked((), (note_on(f"that failed: {said}", "what its processes wait for"),))


@dataclass(frozen=True)
class _Beginning:
    """The command's process, which may wait for ever for the file of its program: a file system
    that does not answer holds the process that asks it, so this one does not wait for the program.

    ``failure`` is a pipe that brings the number of the error with which the program could not
    begin, and ends once it has.
    """

    process: subprocess.Popen[bytes]
    failure: int
    name: str
    candidates: tuple[bytes, ...]

    @classmethod
    def of(cls, command: Sequence[str], let_in: Callable[[], None]) -> _Beginning:
        entries = (entry.partition(b"=") for entry in target_environment())
        given = {name: value for name, equals, value in entries if equals}
        name = os.fsencode(command[0])
        path = given.get(b"PATH", os.fsencode(os.defpath))
        folders = [] if b"/" in name else path.split(os.fsencode(os.pathsep))
        candidates = tuple(folder + b"/" + name for folder in folders) or (name,)
        failure, told = os.pipe()
        guard = os.getpid()

        def begin() -> NoReturn:
            let_in()
            # Those that ask are children of ours, and none of its ancestors (Yama's scope 1).
            _core.let_trace(guard)
            # Popen waits for the end of a pipe of its own. What the command is given stays open.
            for fd in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208  no objects here
                with contextlib.suppress(OSError):
                    if fd not in (0, 1, 2, told) and not os.get_inheritable(fd):
                        os.close(fd)
            os.write(told, b"%d" % _replaced(candidates, command, given))
            os._exit(EXIT_NOT_FOUND)

        try:
            # This process has one thread, so that what runs between fork and exec can't block.
            process = subprocess.Popen(
                command,
                preexec_fn=begin,  # noqa: PLW1509
                close_fds=False,
            )
        except BaseException:
            os.close(failure)
            raise
        finally:
            os.close(told)
        return cls(process, failure, command[0], candidates)

    def check(self) -> None:
        """Raises UsageError if the program could not begin. To be called when its process has
        ended.
        """
        if number := os.read(self.failure, 16):
            error = int(number)
            fix = "Write a program, not a line of a shell: sh -c '..' runs one."
            if error == EACCES and "/" in self.name and Path(self.name).is_file():
                fix = f"`{quote_command('chmod', '+x', self.name)}` makes the file a program."
            failure = UsageError(
                "The command can't be started", f"{self.name}: {os.strerror(error)}", fix
            )
            failure.exit_code = EXIT_NOT_FOUND if error == ENOENT else EXIT_CANNOT_START
            raise failure

    def missing(self) -> str:
        """Says why the program has not begun; empty: it has."""
        if select.select([self.failure], [], [], 0)[0]:
            return ""
        silent = (_core.silence_of(os.fsdecode(path)) for path in self.candidates)
        why = next((one for one in silent if one is not None), "its file is still awaited")
        return f", and its program did not begin: {why}"

    def close(self) -> None:
        os.close(self.failure)


def _replaced(
    candidates: Sequence[bytes], command: Sequence[str], environment: Mapping[bytes, bytes]
) -> int:
    """Becomes the first of the files that is a program; else the number of the error."""
    found = ENOENT
    for path in candidates:
        try:
            os.execve(path, [*command], environment)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            found = error.errno or found if found == ENOENT else found
    return found
