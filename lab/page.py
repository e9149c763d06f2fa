# SPDX-License-Identifier: MIT
"""Renders docs/accuracy.md from the kept looks.

In: results/looks.jsonl, results/starts.json, the recipes. Out: the page. A figure of accuracy is
the mean over families: one with many variants counts no more than another.
"""

from __future__ import annotations

import collections
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from case import KINDS, PARTS, ROOT, Case
from judge import CONTAINS, FAILED, HALF, NOTHING, RIGHT, WRONG

PAGE = ROOT / "docs" / "accuracy.md"
VERBS = ("spin", "core", "diff", "find", "why", "why-core", "guard", "diagnose")
Row = dict[str, Any]


def render(kept: Path, starts: Path, cases: Sequence[Case]) -> int:
    """Writes the page."""
    every = [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()]
    by_id = {case.id: case for case in cases}
    rows = [row for row in every if not row["without"] and row["verb"] in VERBS]
    plain = [row for row in rows if row["load"] == "idle"]
    families = {case.family for case in cases}
    negatives = sum(case.is_negative for case in cases)
    dates = sorted({row["date"] for row in rows})
    commits = sorted({row["commit"] for row in rows})
    text = [
        "# Accuracy",
        "",
        "Rendered by `lab/lab.py page` from `lab/results`. [The lab](../lab/README.md) starts "
        "programs that",
        "hang, spin, or do neither, finds out what is true without flagfinder, and asks.",
        "",
        f"- {len(cases)} cases in {len(families)} families, {negatives} of them negatives: nothing "
        "is wrong there.",
        f"- {len(rows)} looks, {' to '.join(sorted({dates[0], dates[-1]}))}, at "
        f"{', '.join(commits)}."
        if dates
        else "- No looks yet.",
        "- Each family has the same weight, however many variants it has.",
        "- *Open*: rules may be made for it. *Check*: run by whoever changes a rule. *Sealed*: "
        "nobody looks",
        "  at a cause before the release is out.",
        "- **right**: the first word, or the root, is the truth. **in it**: the answer contains "
        "it. **half**:",
        "  right class, something is missing. **wrong**: something else is claimed. Of a negative "
        "right",
        "  means that nothing was claimed.",
    ]
    if starts.exists():
        text.append(f"- {_starts(json.loads(starts.read_text(encoding='utf-8')))}")
    positive = [row for row in plain if row["kind"] != "negative"]
    negative = [row for row in plain if row["kind"] == "negative"]
    for title, chosen, key in (
        ("By part and verb", positive, lambda row: (row["part"], row["verb"])),
        ("Negatives", negative, lambda row: (row["part"], row["verb"])),
        ("By kind and verb", positive, lambda row: (KINDS[row["kind"]], row["verb"])),
        ("By language and verb", positive, lambda row: (row["language"], row["verb"])),
    ):
        text += ["", f"## {title}", "", *_table(chosen, key)]
    busy = [row for row in rows if row["load"] == "busy"]
    if busy:
        text += ["", "## Beside a busy process", "", *_table(busy, lambda row: ("", row["verb"]))]
    text += ["", "## How it says it knows", "", *_marks(plain)]
    text += ["", "## Cost", "", *_cost(plain)]
    if foreign := [row for row in every if row["verb"] not in VERBS]:
        text += ["", "## Other tools on the same cases", "", *_foreign(foreign, plain)]
    for rule in sorted({row["without"] for row in every} - {""}):
        text += ["", f"## Without {rule}", "", *_ablation(every, rule)]
    text += ["", "## Wrong answers", "", *_wrong(plain, by_id)]
    PAGE.write_text("\n".join(text) + "\n", encoding="utf-8")
    return 0


def _starts(kept: Row) -> str:
    return (
        f"Starts checked without flagfinder on {kept['date']}: {kept['starts'] - kept['failed']} "
        f"of {kept['starts']}; {len(kept['not_built'])} cases could not be built."
    )


def _share(rows: Iterable[Row], results: Sequence[str]) -> float:
    """The mean over families of the share of looks with such a result."""
    families: dict[str, list[bool]] = {}
    for row in rows:
        families.setdefault(row["case"].split("/")[0], []).append(row["result"] in results)
    return sum(sum(one) / len(one) for one in families.values()) / len(families)


def _rows_of(head: Sequence[str], body: Iterable[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(cells)} |" for cells in body),
    ]


def _table(rows: Sequence[Row], key: Callable[[Row], tuple[str, str]]) -> list[str]:
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    order = {name: index for index, name in enumerate((*PARTS, *KINDS.values()))}

    def place(one: tuple[tuple[str, str], list[Row]]) -> tuple[int, str, int]:
        (group, verb), _ = one
        return order.get(group, len(order)), group, VERBS.index(verb)

    head = ("", "verb", "families", "looks", "right", "in it", "half", "nothing", "wrong", "failed")
    body = []
    for (group, verb), own in sorted(groups.items(), key=place):
        families = {row["case"].split("/")[0] for row in own}
        shares = [
            f"{_share(own, [result]):.0%}"
            for result in (RIGHT, CONTAINS, HALF, NOTHING, WRONG, FAILED)
        ]
        body.append((group, verb, str(len(families)), str(len(own)), *shares))
    return _rows_of(head, body)


def _marks(rows: Sequence[Row]) -> list[str]:
    """How often each mark was right, among answers that claim something."""
    counts: dict[tuple[str, str], collections.Counter[str]] = {}
    for row in rows:
        if row["mark"] and row["result"] in (RIGHT, CONTAINS, HALF, WRONG):
            what = "words" if row["verb"] in ("spin", "core", "diff", "find") else "chains"
            counts.setdefault((what, row["mark"]), collections.Counter())[row["result"]] += 1
    body = [
        (what, mark, str(own.total()), f"{own[RIGHT] / own.total():.0%}", str(own[WRONG]))
        for (what, mark), own in sorted(counts.items())
    ]
    return _rows_of(("of", "mark", "answers", "right", "wrong"), body)


def _cost(rows: Sequence[Row]) -> list[str]:
    body = []
    for verb in VERBS:
        own = [row for row in rows if row["verb"] == verb and row["seconds"] is not None]
        if own and verb != "guard":
            seconds = sorted(row["seconds"] for row in own)
            pauses = sorted(row["pause_ms"] for row in own if row["pause_ms"] is not None)
            memory = max(row["memory_mib"] for row in own)
            body.append(
                (
                    verb,
                    f"{seconds[len(seconds) // 2]:.1f}",
                    f"{seconds[int(len(seconds) * 0.9)]:.1f}",
                    f"{seconds[-1]:.1f}",
                    f"{pauses[len(pauses) // 2]:.2f}" if pauses else "",
                    f"{pauses[-1]:.0f}" if pauses else "",
                    str(memory),
                )
            )
    head = ("verb", "s, median", "s, 9 of 10", "s, most", "pause ms", "most", "MiB, most")
    return _rows_of(head, body)


def _foreign(foreign: Sequence[Row], plain: Sequence[Row]) -> list[str]:
    """For each case that other tools were asked about: did what they printed name the cause?"""
    tools = sorted({row["verb"] for row in foreign})
    names = sorted({row["case"] for row in foreign})
    words = {RIGHT: "yes", CONTAINS: "in it", HALF: "half", FAILED: "failed"}
    best: dict[tuple[str, str], str] = {}
    for row in (*foreign, *plain):
        cell = words.get(row["result"], "wrong" if row["result"] == WRONG else "no")
        best.setdefault((row["case"], row["verb"]), cell)
    ours = ("spin", "why")
    body = [(name, *(best.get((name, one), "") for one in (*tools, *ours))) for name in names]
    return _rows_of(("case", *tools, *ours), body)


def _ablation(every: Sequence[Row], rule: str) -> list[str]:
    """What switching a rule off gains and loses, by family."""
    off = [row for row in every if row["without"] == rule]
    asked = {(row["case"], row["verb"], row["load"]) for row in off}
    on = [
        row
        for row in every
        if not row["without"] and (row["case"], row["verb"], row["load"]) in asked
    ]
    body = []
    for family in sorted({row["case"].split("/")[0] for row in off}):
        own = [[row for row in rows if row["case"].split("/")[0] == family] for rows in (on, off)]
        if not all(own):
            continue
        right = [_share(rows, [RIGHT]) for rows in own]
        wrong = [_share(rows, [WRONG]) for rows in own]
        if right[0] != right[1] or wrong[0] != wrong[1]:
            shares = (f"{right[0]:.0%}", f"{right[1]:.0%}", f"{wrong[0]:.0%}", f"{wrong[1]:.0%}")
            body.append((family, *shares))
    if not body:
        return ["No family changes."]
    return _rows_of(("family", "right with", "without", "wrong with", "without"), body)


def _wrong(rows: Sequence[Row], by_id: dict[str, Case]) -> list[str]:
    """One row for each case and verb with a wrong answer; nothing of what is sealed is shown."""
    body, sealed = [], 0
    seen: set[tuple[str, str]] = set()
    for row in rows:
        if row["result"] != WRONG or (row["case"], row["verb"]) in seen:
            continue
        seen.add((row["case"], row["verb"]))
        if row["part"] == "sealed":
            sealed += 1
            continue
        truth = by_id[row["case"]].about if row["case"] in by_id else ""
        said = row["said"].replace("|", "\\|")
        body.append((row["case"], row["verb"], said[:110], truth))
    table = _rows_of(("case", "verb", "said", "truth"), body) if body else ["None shown."]
    return [*table, "", f"{sealed} more in *sealed*."] if sealed else table
