# SPDX-License-Identifier: MIT
"""``why`` for several processes, in a process that is left behind where one of them holds it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from flagfinder.live.apart import LeftBehind, ask_apart
from flagfinder.live.deadline import Deadline, note_on
from flagfinder.live.tree import PATIENCE, Answer, Asked, ask, asked


def ask_all(pids: Sequence[int], timeout: float, patience: float = PATIENCE) -> Asked:
    """The answers that came in time, whatever holds up the others."""
    answers: dict[int, Answer] = {}

    def hear(what: object) -> None:
        answer = cast("Answer", what)
        answers[answer[0]] = answer

    try:
        deadline = Deadline.after(timeout)
        return ask_apart(
            lambda post: ask(pids, deadline=deadline, so_far=post, patience=patience), timeout, hear
        )
    except LeftBehind as failure:
        return asked(answers.values(), [note_on(failure.because, failure.untold)])
