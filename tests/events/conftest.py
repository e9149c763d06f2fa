# SPDX-License-Identifier: MIT
"""The recorder of event tests."""

from __future__ import annotations

import os

import pytest
from event_recorder import Recorder
from harness import live_or_skip


@pytest.fixture(scope="session")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Recorder:
    """Needs root, or CAP_BPF and CAP_PERFMON."""
    if os.geteuid() != 0:
        live_or_skip("recording events needs CAP_BPF and CAP_PERFMON; run as root")
    return Recorder(tmp_path_factory.mktemp("events"))
