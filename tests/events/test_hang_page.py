# SPDX-License-Identifier: MIT
"""`report`: what the page says, and that a browser draws it from nothing but itself."""

from __future__ import annotations

import html
import json
import os
import re
import xml.etree.ElementTree as xml
from pathlib import Path
from typing import Any

import pytest
from event_recorder import Recorded, Recorder
from harness import browse, flagfinder

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]
WAITS = 1  # kind of a slice


@pytest.fixture(scope="module")
def recorded(recorder: Recorder) -> Recorded:
    return recorder.record("hangs", "chain", "sleeps", options=("--stacks", "all"))


@pytest.fixture(scope="module")
def page(recorded: Recorded) -> Path:
    graph, path = recorded.path.with_suffix(".graph"), recorded.path.with_suffix(".html")
    assert flagfinder("graph", "build", recorded.path, "-o", graph).returncode == 0
    ran = flagfinder("report", graph, "-o", path)
    assert ran.returncode == 0, ran.stderr
    return path


def data_of(page: Path) -> dict[str, Any]:
    data = re.search(r'id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert data
    found: dict[str, Any] = json.loads(data[1])
    return found


def test_the_story_names_the_culprit_in_five_lines(recorded: Recorded, page: Path) -> None:
    text = page.read_text()
    (title,), (first,) = (re.findall(f"<{tag}>(.*?)</{tag}>", text) for tag in ("title", "h1"))
    assert title == first, "the answer"
    more = re.findall(r"<li>(.*?)</li>", text.split('<ol class="story">')[1].split("</ol>")[0])
    story = [first, *more]
    assert 2 <= len(story) <= 5
    assert story[0].startswith(f"Thread {recorded.roles['culprit']} (hangs) of process ")
    assert f"thread {recorded.roles['main']} (hangs) waited for that." in story[0]
    assert "be_late (hangs) at " in story[0]
    assert f"Thread {recorded.roles['main']} (hangs) waited in read on pipe:" in story[1]
    assert "No event was lost." in text
    assert f"{os.uname().nodename}, 20" in text, "where it was made, and when"


def test_the_page_needs_nothing_else(page: Path) -> None:
    text = page.read_text()
    assert not re.findall(
        r"""(?:src|href)\s*=|url\(["']?(?!#)|@import|https?://(?!www\.w3\.org/2000/svg)""", text
    )
    assert "<!--" not in text.removeprefix("<!doctype html>")


def test_a_browser_draws_the_threads_their_waits_and_the_arrows(
    recorded: Recorded, page: Path
) -> None:
    dom = browse(page, "--dump-dom", "--virtual-time-budget=2000")
    drawing = xml.fromstring(re.search(r"<svg.*?</svg>", dom, re.DOTALL)[0])  # type: ignore[index]
    titles = [title.text or "" for title in drawing.iter("title")]
    main, culprit = recorded.roles["main"], recorded.roles["culprit"]
    assert any(title.startswith(f"{main} hangs: read pipe:") for title in titles)
    assert any(title.startswith(f"{culprit} hangs: clock_nanosleep for 4") for title in titles)
    assert any(title.startswith("ipc from ") and f"to {main} hangs" in title for title in titles)
    labels = [text.text for text in drawing.iter("text") if "culprit" in (text.get("style") or "")]
    assert labels == [f"{culprit} hangs"]


def test_slices_carry_their_call_sites(recorded: Recorded, page: Path) -> None:
    data = data_of(page)
    row = [thread["label"].split()[0] for thread in data["threads"]].index(
        str(recorded.roles["culprit"])
    )
    (begin, end), hang = data["view"], data["hang"]
    assert begin <= hang[0] < hang[1] <= end
    assert all(
        begin <= start + dur and start <= end
        for thread in data["threads"]
        for _, start, dur, *_ in thread["slices"]
    )
    waits = [part for part in data["threads"][row]["slices"] if part[0] == WAITS]
    stack = data["stacks"][max(waits, key=lambda part: part[2])[5]]
    assert any(data["sites"][site].startswith("be_late") for site in stack)


def test_every_culprit_s_row_shows_something(page: Path) -> None:
    """Also where its wait began before the view and ends behind it."""
    data = data_of(page)
    begin, end = data["hang"]
    for thread in data["threads"]:
        if thread["culprit"]:
            assert any(
                start < end and start + dur > begin for _, start, dur, *_ in thread["slices"]
            )
            assert thread["label"].split()[1:], "it has a name"


def test_arrow_keys_go_from_slice_to_slice(page: Path, tmp_path: Path) -> None:
    """The first is what the hung thread did; further down is what another did then."""
    keys = ["ArrowDown", "ArrowUp", "ArrowRight"]
    script = (
        "<script>svg.focus(); const told = [document.activeElement.id];"
        f"for (const key of {keys}) {{ svg.dispatchEvent(new KeyboardEvent('keydown', {{key, "
        f"bubbles: true}}));told.push(document.getElementById('detail').textContent); }}"
        "document.title = JSON.stringify(told);</script></body>"
    )
    (tmp_path / "keys.html").write_text(page.read_text().replace("</body>", script))
    dom = browse(tmp_path / "keys.html", "--dump-dom", "--virtual-time-budget=2000")
    focus, down, up, right = json.loads(html.unescape(re.search("<title>(.*?)</title>", dom)[1]))  # type: ignore[index]
    labels = [thread["label"] for thread in data_of(page)["threads"]]
    assert focus == "timeline"
    assert down.startswith(labels[1])
    assert up.startswith(labels[0])
    assert right.startswith(labels[0])
    assert right != up


@pytest.mark.parametrize(("scheme", "dark"), [(0, True), (1, False)])
def test_the_page_is_dark_where_the_reader_s_screen_is(
    page: Path, tmp_path: Path, scheme: int, dark: bool
) -> None:
    script = (
        "<script>document.title = getComputedStyle(document.body).backgroundColor</script></body>"
    )
    (tmp_path / "dark.html").write_text(page.read_text().replace("</body>", script))
    options = (
        f"--blink-settings=preferredColorScheme={scheme}",
        "--dump-dom",
        "--virtual-time-budget=2000",
    )
    dom = browse(tmp_path / "dark.html", *options)
    color = re.search(r"<title>rgb\((\d+),", dom)
    assert color is not None
    assert (int(color[1]) < 64) == dark


def test_it_prints_on_two_pages_at_most(page: Path, tmp_path: Path) -> None:
    browse(
        page,
        f"--print-to-pdf={tmp_path / 'page.pdf'}",
        "--no-pdf-header-footer",
        "--virtual-time-budget=2000",
    )
    pages = re.findall(rb"/Type\s*/Page\b", (tmp_path / "page.pdf").read_bytes())
    assert 1 <= len(pages) <= 2


def test_names_that_look_like_markup_stay_text(recorder: Recorder) -> None:
    """A thread may be called anything."""
    recorded = recorder.record("hangs", "named")
    graph, path = recorded.path.with_suffix(".graph"), recorded.path.with_suffix(".html")
    assert flagfinder("graph", "build", recorded.path, "-o", graph).returncode == 0
    assert flagfinder("report", graph, "-o", path).returncode == 0
    text = path.read_text()
    assert "mostly in compute (hangs) at hangs.c:" in text
    assert "<b>&</script" not in text
    assert "&lt;b&gt;&amp;&lt;/script" in text


def test_without_a_hang_there_is_no_page(recorded: Recorded, page: Path, tmp_path: Path) -> None:
    assert page.exists()
    options = ["-o", tmp_path / "x.html", "--thread", "4194305"]
    assert flagfinder("report", recorded.path.with_suffix(".graph"), *options).returncode == 1
    assert not (tmp_path / "x.html").exists()
