# SPDX-License-Identifier: MIT
"""A command that may hang: started, and asked why once it does.

In: a command. Out: its exit status, or what ``why`` found in its tree of processes, which is ended
then. Until the command hangs nothing is done but waiting.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from flagfinder.live.apart import LeftBehind, ask_apart
from flagfinder.live.deadline import TREE_TIMEOUT, Deadline, note_on
from flagfinder.live.family import Family
from flagfinder.live.idleness import wait
from flagfinder.live.tree import Answer, Asked, LeftProcess, ask, asked
from flagfinder.live.why_chain import WhyReport
from flagfinder.shared.environment import target_environment
from flagfinder.shared.errors import UsageError
from flagfinder.shared.interruption import forget_waiting, held_back, interruptible

EXIT_HUNG = 124  # as of timeout(1)
EXIT_CANNOT_START = 126
EXIT_NOT_FOUND = 127


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
        process = _started(command, let_in)
        found: Asked | None = None
        with interruptible():
            try:
                let_in()
                because = wait(process, after, idle)
                if because is None:
                    status = process.wait()
                    return 128 - status if status < 0 else status
                # The command's own process is asked first, and also if it is one that waits to be
                # reaped.
                pids = tuple(dict.fromkeys((process.pid, *family.living())))
                found = _ask(pids, timeout)
                hung(Hang(pids, because, found.reports, found.notes))
            finally:
                # A second signal must not leave the tree alive: the end takes seconds at most.
                with held_back():
                    if process.returncode is None and (remaining := family.end(process)):
                        left(remaining)
                    if found is not None:
                        forget_waiting()
    return EXIT_HUNG


def _ask(pids: Sequence[int], timeout: float) -> Asked:
    """The answers that came in time, whatever holds up the others."""
    answers: dict[int, Answer] = {}

    def hear(what: object) -> None:
        answer = cast("Answer", what)
        answers[answer[0]] = answer

    try:
        deadline = Deadline.after(timeout)
        return ask_apart(lambda post: ask(pids, deadline=deadline, so_far=post), timeout, hear)
    except LeftBehind as failure:
        return asked(answers.values(), [note_on(failure.because, failure.untold)])


def _started(command: Sequence[str], let_in: Callable[[], None]) -> subprocess.Popen[bytes]:
    entries = (entry.partition(b"=") for entry in target_environment())
    given = {name: value for name, equals, value in entries if equals}
    try:
        # This process has one thread, so that what runs between fork and exec can't block.
        return subprocess.Popen(command, env=given, preexec_fn=let_in)  # noqa: PLW1509
    except OSError as error:
        failure = UsageError(
            "The command can't be started",
            f"{error.filename}: {error.strerror}",
            "Write a program, not a line of a shell: sh -c '..' runs one.",
        )
        failure.exit_code = (
            EXIT_NOT_FOUND if isinstance(error, FileNotFoundError) else EXIT_CANNOT_START
        )
        raise failure from None
