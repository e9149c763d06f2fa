# SPDX-License-Identifier: MIT
"""Threads read sources side by side."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from flagfinder.shared.syntax import tree_of


@pytest.fixture
def collected_often() -> Iterator[None]:
    """Collections let other threads run in the middle of a tree."""

    def lets_go(*_: object) -> None:
        time.sleep(0.0001)

    before = gc.get_threshold()
    gc.callbacks.append(lets_go)
    gc.set_threshold(50)
    yield
    gc.set_threshold(*before)
    gc.callbacks.remove(lets_go)


@pytest.mark.usefixtures("collected_often")
def test_threads_read_sources_at_the_same_time() -> None:
    source = "".join(
        f"def f{at}(a, b):\n  return ((((a + b) * {at}) if a else [b]))\n" for at in range(200)
    )
    with ThreadPoolExecutor(4) as pool:
        trees = list(pool.map(lambda _: len(tree_of(source).body), range(16)))
    assert trees == [200] * 16
