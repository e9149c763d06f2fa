# SPDX-License-Identifier: MIT
"""Processes with what they started: who is found, and who gets a signal."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from flagfinder.live import tree
from flagfinder.live.tree import Process, descended, end_tree


def test_another_process_that_has_its_number_by_now_gets_no_signal() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        process = Process.of(child.pid)
        with pytest.raises(ProcessLookupError):
            process._replace(started=process.started - 1).send(signal.SIGKILL)
        assert process in descended(os.getpid())
        process.send(signal.SIGKILL)
        assert child.wait(timeout=60) == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        process.send(signal.SIGKILL)


def test_what_has_the_number_of_one_of_a_tree_outlives_that_tree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with subprocess.Popen(["sleep", "60"]) as root, subprocess.Popen(["sleep", "60"]) as other:
        stale = [Process(other.pid, 1)]
        monkeypatch.setattr(tree, "descended", lambda _: stale)
        assert end_tree(root.pid) == []
        assert root.wait(timeout=60) == -signal.SIGKILL
        assert other.poll() is None
        other.kill()
