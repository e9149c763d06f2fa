# SPDX-License-Identifier: MIT
"""In: a running process, nothing recorded. Out: ``spin``: the loop and the word of each thread that
waits; ``poke``: what happened after the value that ends the loop was written.
"""

from contextlib import suppress

from flagfinder import _core
from flagfinder.shared.places import cache_dir

with suppress(RuntimeError):  # a user without a home keeps none
    _core.keep_indexes_in(str(cache_dir() / "stores"))
