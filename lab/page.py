# SPDX-License-Identifier: MIT
"""Renders docs/accuracy.md from the kept looks.

In: results/looks.jsonl, results/starts.json, the recipes. Out: the page. A figure of accuracy is
the mean over families: one with many variants counts no more than another.
"""

from __future__ import annotations

import collections
import json
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from case import KINDS, PARTS, ROOT, Case
from judge import CONTAINS, HALF, RIGHT, WRONG

PAGE = ROOT / "docs" / "accuracy.md"
VERBS = ("spin", "core", "diff", "find", "why", "why-core", "guard", "diagnose")
Row = dict[str, Any]


def render(kept: Path, starts: Path, ablation: Path, cases: Sequence[Case]) -> int:
    """Writes the page."""
    every = [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in every if not row["without"] and row["verb"] in VERBS]
    plain = [row for row in rows if row["load"] == "idle"]
    families = {case.family for case in cases}
    negatives = sum(case.is_negative for case in cases)
    dates = sorted({row["date"] for row in rows})
    text = [
        "# Accuracy",
        "",
        "Rendered by `lab/lab.py page` from `lab/results`. [The lab](../lab/lab.py) starts "
        "programs that",
        "hang, spin, or do neither, finds out what is true without flagfinder, and asks.",
        "",
        f"- {len(cases)} cases in {len(families)} families, {negatives} of them negatives: nothing "
        "is wrong there.",
        f"- {len(rows)} looks, {' to '.join(sorted({dates[0], dates[-1]}))}; `looks.jsonl` has the "
        "commits."
        if dates
        else "- No looks yet.",
        "- Each family has the same weight. A cell has percents: of answers whose first word, or "
        "root, is",
        "  the truth, and of those that claim something else, where there are any. Of a negative "
        "right",
        "  means that nothing was claimed.",
    ]
    if starts.exists():
        text.append(f"- {_starts(json.loads(starts.read_text(encoding='utf-8')))}")
    positive = [row for row in plain if row["kind"] != "negative"]
    negative = [row for row in plain if row["kind"] == "negative"]
    busy = [{**row, "part": "beside a busy process"} for row in rows if row["load"] == "busy"]
    kinds = [{**row, "kind": KINDS.get(row["kind"])} for row in positive]
    parts = [{**row, "part": f"{row['part']}, negative"} for row in negative]
    groups = (([*positive, *busy, *parts], "part"), (kinds, "kind"), (positive, "language"))
    text += ["", "## By part, kind and language", "", *_table(groups)]
    text += ["", "## How it says it knows", "", *_marks(plain)]
    text += ["", "## Cost", "", *_cost(plain)]
    if foreign := [row for row in every if row["verb"] not in VERBS]:
        text += ["", "## Other tools on the same cases", "", *_foreign(foreign, plain)]
    if ablation.exists():
        text += ["", "## Rules", "", *_ablation(json.loads(ablation.read_text(encoding="utf-8")))]
    text += ["", "## Wrong answers", "", *_wrong(plain)]
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
        *(f"| {' | '.join(cells)}".rstrip(" |") + " |" for cells in body),
    ]


def _table(groupings: Sequence[tuple[Sequence[Row], str]]) -> list[str]:
    """A row for each group of each grouping, with a cell for each verb: right and wrong."""
    asked = {row["verb"] for rows, _ in groupings for row in rows}
    verbs = [verb for verb in VERBS if verb in asked]
    order = {name: index for index, name in enumerate((*PARTS, *KINDS.values()))}

    def cell(own: Sequence[Row]) -> str:
        if not own:
            return ""
        right, wrong = (100 * _share(own, [result]) for result in (RIGHT, WRONG))
        return f"{right:.0f}, {wrong:.0f}" if wrong else f"{right:.0f}"

    body = []
    for rows, group in groupings:
        groups: dict[str, dict[str, list[Row]]] = {}
        for row in rows:
            groups.setdefault(row[group], {}).setdefault(row["verb"], []).append(row)
        for name in sorted(groups, key=lambda name: (order.get(name, len(order)), name)):
            own = groups[name]
            families = {row["case"].split("/")[0] for looks in own.values() for row in looks}
            body.append((name, str(len(families)), *(cell(own.get(verb, ())) for verb in verbs)))
    return _rows_of(("", "families", *verbs), body)


def _marks(rows: Sequence[Row]) -> list[str]:
    """How often each mark was right, among answers that claim something."""
    counts: dict[tuple[str, str], collections.Counter[str]] = {}
    for row in rows:
        if row["mark"] and row["result"] in (RIGHT, CONTAINS, HALF, WRONG):
            what = "words" if row["verb"] in ("spin", "core", "diff", "find") else "chains"
            counts.setdefault((what, row["mark"]), collections.Counter())[row["result"]] += 1
    body = [
        (what, mark, str(own.total()), f"{100 * own[RIGHT] / own.total():.0f}", str(own[WRONG]))
        for (what, mark), own in sorted(counts.items())
    ]
    return _rows_of(("of", "mark", "answers", "right, %", "wrong"), body)


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
    """Of the cases that other tools were asked about: of how many is the cause in what they
    printed?
    """
    asked: dict[str, set[str]] = {}
    named: dict[str, set[str]] = {}
    cases = {row["case"] for row in foreign}
    for row in (*foreign, *(row for row in plain if row["case"] in cases)):
        asked.setdefault(row["verb"], set()).add(row["case"])
        if row["result"] in (RIGHT, CONTAINS):
            named.setdefault(row["verb"], set()).add(row["case"])
    tools = sorted({row["verb"] for row in foreign})
    body = [
        (tool, str(len(asked[tool])), str(len(named.get(tool, ()))))
        for tool in (*tools, "spin", "why")
        if tool in asked
    ]
    return _rows_of(("tool", "cases", "named the cause"), body)


def _ablation(kept: Row) -> list[str]:
    """How many rules some answer needs; ablation.json has where that was seen first."""
    told = (
        f"{len(kept['asked'])} questions were asked without all rules that no answer before had "
        f"needed ({kept['date']}): {len(kept['needed'])} rules are needed. {len(kept['better'])} "
        "answers were better without the others."
    )
    return textwrap.wrap(told, 100)


def _wrong(rows: Sequence[Row]) -> list[str]:
    """The cases with a wrong answer, by family; nothing of what is sealed is shown."""
    sealed = {row["case"] for row in rows if row["result"] == WRONG and row["part"] == "sealed"}
    wrong: dict[str, tuple[set[str], set[str]]] = {}
    for row in rows:
        if row["result"] == WRONG and row["part"] != "sealed":
            family, _, case = row["case"].partition("/")
            cases, verbs = wrong.setdefault(family, (set(), set()))
            cases.add(case)
            verbs.add(row["verb"])
    body = [
        (family, ", ".join(sorted(cases - {"only"})), ", ".join(sorted(verbs)))
        for family, (cases, verbs) in wrong.items()
    ]
    table = _rows_of(("family", "cases", "verbs"), body) if body else ["None shown."]
    return [*table, "", f"{len(sealed)} more cases in *sealed*."] if sealed else table
