# SPDX-License-Identifier: MIT
"""What `watch` prints of an event."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flagfinder.report.terminal import Terminal
from flagfinder.report.watch_report import LiveEvents


def test_an_event_with_long_names_fits_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    code = {
        "address": "0x5555",
        "function": "wait_until_every_single_worker_has_ended",
        "module": "a_server_with_a_long_name",
        "offset": "0x1234",
        "source": "a_long_file_name_of_the_source.c:4711",
        "symbol": "wait_until_every_single_worker_has_ended+0x21",
    }
    event: dict[str, Any] = {
        "event": "data_flag_write",
        "watch": 0,
        "ts": 1_104_632_000,
        "value": "0x1",
        "previous": "0x0",
        "tid": 4711,
        "thread": "worker",
        "code": code,
        "stack": [code],
    }
    header: Any = {"started": "0", "watches": [{}]}
    LiveEvents(Terminal(), header).show([json.dumps(event)])
    printed = capsys.readouterr().out
    assert "1.104632 s  write  0x0 -> 0x1  thread 4711 (worker)" in printed
    assert "called from" in printed
    lines = printed.splitlines()
    assert max(map(len, lines)) <= 100, printed
    assert all(line.startswith(" ") for line in lines)
