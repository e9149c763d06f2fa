# SPDX-License-Identifier: MIT
"""The page of `why`: names of programs are hostile, and a circle is drawn."""

from __future__ import annotations

import html
import json
import os
import re
import xml.etree.ElementTree as xml

import pytest

from flagfinder.live.why_chain import WhyReport, why_text
from flagfinder.report.why_page import why_page
from flagfinder.shared.visible import visible

EVIL = "</svg><script>x</script><!--DATA-->\x1b[31m"


def report(name: str) -> WhyReport:
    def node(pid: int, tid: int) -> dict[str, object]:
        return {"pid": pid, "tid": tid, "name": name}

    def link(waiter: dict[str, object], owed: dict[str, object]) -> dict[str, object]:
        return {
            "waiter": waiter,
            "waits_for": {"kind": "lock", "name": name, "address": "0x10"},
            "owed_by": {**owed, "code": None},
            "known": "seen",
            "reason": name,
            "stack": [],
            "at": {
                "function": "one",
                "file": f"/src/{name}.c",
                "line": 5,
                "module": None,
                "offset": None,
            },
        }

    links = [
        link(node(1, 1), node(2, 3)),
        link(node(2, 3), node(2, 4)),
        link(node(2, 4), node(1, 1)),
    ]
    root = {"kind": "deadlock", "pid": 1, "tid": 1, "name": name, "what": name}
    fields = {
        "schema": "flagfinder.why/1",
        "pid": 1,
        "program": name,
        "story": [name],
        "links": links,
        "root": root,
        "next": [name],
        "notes": [],
    }
    return WhyReport.from_json(json.dumps(fields))


def test_names_are_text() -> None:
    page = why_page(report(EVIL))
    assert page.count("<script>") == 1
    assert "<!--" not in page.removeprefix("<!doctype html>")
    assert "\x1b" not in page
    assert "\x1b" not in why_text(report(EVIL))


def test_the_title_is_the_answer_and_the_page_says_where_it_was_asked() -> None:
    page = why_page(report("app"))
    answer = html.unescape(re.search(r"<title>(.*?)</title>", page)[1])  # type: ignore[index]
    assert answer == report("app").story[0]
    assert os.uname().nodename in page
    assert "flagfinder 0." in page


def test_other_processes_are_told_below() -> None:
    page = why_page(report("app"), [report("helper")])
    assert "<h3>process 1 <span" in page.partition("Other processes")[2]


def test_a_narrow_page_draws_all_in_one_column() -> None:
    page = why_page(report("app"))
    wide, narrow = (
        {box.get("x") for box in xml.fromstring(one).iter("rect") if box.get("class") == "process"}
        for one in re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    )
    assert (len(wide), len(narrow)) == (2, 1)


def test_the_only_column_of_a_narrow_page_is_as_broad_as_the_page() -> None:
    page = why_page(report("app"))
    _, narrow = map(xml.fromstring, re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    assert narrow.get("width") == "100%"
    boxes = [box.get("style") or "" for box in narrow.iter("rect")]
    assert boxes
    assert all("width:calc(100% - " in style for style in boxes)
    arrows = [group.get("class") for group in narrow.iter("g")]
    assert arrows == ["arrow from-right"] * 3


def test_what_is_too_long_for_its_box_is_there_whole() -> None:
    """The browser cuts it with an ellipsis; on hover it is shown."""
    name = "a-lock-with-a-very-long-name-" * 8
    page = why_page(report(name))
    drawing = xml.fromstring(re.search(r"<svg.*?</svg>", page, re.DOTALL)[0])  # type: ignore[index]
    titles = [label.get("title") or "" for label in drawing.iter("div") if label.get("title")]
    assert len(titles) == 5, "two processes, three threads"
    assert all(name in title for title in titles)
    assert re.search(r"\.label \.line \{[^}]*text-overflow: ellipsis", page)


@pytest.mark.parametrize(
    ("kind", "role"), [("deadlock", "fault"), ("unknown", "unknown"), ("timer", "waits")]
)
def test_a_fault_a_gap_and_an_idle_thread_look_different(kind: str, role: str) -> None:
    raw = report("app").raw
    page = why_page(WhyReport.from_json(json.dumps({**raw, "root": {**raw["root"], "kind": kind}})))
    assert f'<h1><span class="{role}">' in page
    assert f'<ol class="story of-{role}"><li>' in page


def test_boxes_and_evidence_say_where() -> None:
    page = why_page(report("app"))
    assert page.count('<div class="at">at one() app.c:5</div>') == 6, "three threads, drawn twice"
    assert page.count("<dt>waits at</dt><dd>one() app.c:5 (/src/app.c)</dd>") == 3


def test_every_link_has_its_arrow_and_its_evidence() -> None:
    page = why_page(report("app"))
    drawing = xml.fromstring(re.search(r"<svg.*?</svg>", page, re.DOTALL)[0])  # type: ignore[index]
    arrows = [group.get("data-link") for group in drawing.iter("g")]
    assert arrows == ["0", "1", "2"]
    assert re.findall(r'<details id="link-(\d)">', page) == arrows
    boxes = [box.get("class") for box in drawing.iter("rect")]
    assert boxes.count("process") == 2
    assert boxes.count("thread") == 3


def test_a_notebook_and_print_show_the_story() -> None:
    told = report(EVIL)
    shown = told._repr_html_()
    assert "<script>" not in shown and "\x1b" not in shown
    parts = [html.unescape("".join(part.itertext())) for part in xml.fromstring(f"<p>{shown}</p>")]
    assert [*parts[: len(told.story)], parts[-1]] == [
        *map(visible, told.story),
        visible(f"next: {EVIL}"),
    ]
    assert "color:#d1383f" in shown, "a deadlock is a fault"
    assert str(told) == why_text(told)


def test_a_box_is_as_high_as_what_stands_in_it() -> None:
    def heights(name: str) -> list[int]:
        page = why_page(report(name))
        drawings = map(xml.fromstring, re.findall(r"<svg.*?</svg>", page, re.DOTALL))
        boxes = (
            box for one in drawings for box in one.iter("rect") if box.get("class") == "thread"
        )
        return sorted({int(box.get("height") or 0) for box in boxes})

    wide, narrow = heights("a lock with a name of some words " * 2)
    (least,) = heights("app")
    assert least < wide < narrow
