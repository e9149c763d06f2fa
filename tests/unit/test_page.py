# SPDX-License-Identifier: MIT
"""Pages of one file, and what names of threads may put into them."""

from __future__ import annotations

import re
from importlib import resources

import pytest

from flagfinder.report.page import fill_page

TEMPLATES = [
    file.name
    for file in resources.files("flagfinder.report").iterdir()
    if file.name.endswith(".html")
]


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_page_shows_control_characters_and_holds_none(template: str) -> None:
    text = resources.files("flagfinder.report").joinpath(template).read_text(encoding="utf-8")
    places = re.findall(r"<!--([A-Z]+)-->", text)
    page = fill_page(template, dict.fromkeys(places, "a\x1b]0;b\x07\u202e\n"))
    assert not set("\x1b\x07\u202e") & set(page)
    assert "a\\u001b]0;b\\u0007\\u202e\n" in page
