# SPDX-License-Identifier: MIT
"""Questions that are asked in a process of their own."""

from __future__ import annotations

import os
import time
from typing import NoReturn

import pytest

from flagfinder.live import apart
from flagfinder.live.apart import LeftBehind, ask_apart


def test_why_the_child_can_not_begin_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a sandbox whose /dev/null can't be opened."""

    def refused(*_: object) -> NoReturn:
        raise PermissionError(13, "Permission denied", os.devnull)

    monkeypatch.setattr(apart, "_stand_apart", refused)
    with pytest.raises(PermissionError, match=os.devnull):
        ask_apart(lambda _: None, 20)


def test_a_child_that_takes_its_time_to_end_is_not_called_stuck(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(apart, "_GRACE", 0.0)
    monkeypatch.setattr(apart, "_ENDS", 0.0)
    with pytest.raises(LeftBehind) as left:
        ask_apart(lambda _: time.sleep(60), 0.2)
    assert "can't be ended" not in left.value.where


def test_what_the_engine_prints_as_it_fails_can_not_act_on_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails(_: object) -> None:
        os.write(2, b"panicked at \x1b]0;title\x07\x9b31m\n  in name\xe2\x80\xaegpj\n")
        raise OSError

    with pytest.raises(OSError):
        ask_apart(fails, 20)
    told = capsys.readouterr().err
    assert told.startswith("panicked at \\u001b]0;title\\u0007") and told.count("\n") == 2
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(told)
