# SPDX-License-Identifier: MIT
"""Pages of one file: a template of this folder, and what is put into it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources

from flagfinder.shared.visible import visible

_PLACE = re.compile(r"<!--([A-Z]+)-->")


def fill_page(template: str, parts: Mapping[str, str]) -> str:
    """The template with ``<!--NAME-->`` replaced by the part of that name, which is HTML.

    What a part holds is not looked at again, but for control characters: names of threads may hold
    them, and a page may be printed to a terminal.
    """
    page = resources.files("flagfinder.report").joinpath(template).read_text(encoding="utf-8")
    return _PLACE.sub(lambda place: visible(parts[place[1]], "\n\t"), page)
