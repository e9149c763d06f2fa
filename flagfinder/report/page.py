# SPDX-License-Identifier: MIT
"""Pages of one file: a template of this folder, and what is put into it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from datetime import datetime
from html import escape
from importlib import resources

from flagfinder import _core
from flagfinder.shared.visible import quote_command, visible

_PLACE = re.compile(r"<!--([A-Z]+)-->")


def fill_page(template: str, parts: Mapping[str, str]) -> str:
    """The template with ``<!--NAME-->`` replaced by the part of that name, which is HTML.

    What a part holds is not looked at again, but for control characters: names of threads may hold
    them, and a page may be printed to a terminal. ``ORIGIN`` is where the page was made.
    """
    parts = {"ORIGIN": escape(visible(_origin())), **parts}
    page = resources.files("flagfinder.report").joinpath(template).read_text(encoding="utf-8")
    return _PLACE.sub(lambda place: visible(parts[place[1]], "\n\t"), page)


def _origin() -> str:
    """On which machine, when, and by which command this was asked."""
    when = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
    command = quote_command("flagfinder", *sys.argv[1:])
    return f"{os.uname().nodename}, {when}, flagfinder {_core.VERSION}: {command}"
