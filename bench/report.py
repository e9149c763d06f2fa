# SPDX-License-Identifier: MIT
"""Renders docs/benchmarks.md from bench/results/*.json: `make report`.

In: one file for each topic, with the runs that were made of it, and machines.json. Out: the page,
whole. Of a topic, a run or a row with `shown` false the file alone tells, as it does of notes. Rows
that agree in all columns but the first, and but those that the topic lists in `spread`, are one.
"""

from __future__ import annotations

import json
import textwrap
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
WIDTH = 98
MANY = 5  # so many names in one row are counted instead
OPENING = """\
What flagfinder costs, beside its bars and beside other tools, and how often it was right. This
page is rendered from the files of bench/results that its headings name, by `make report`;
[bench/README.md](../bench/README.md) says how to measure. A figure in **bold** misses its bar. The
files also hold notes, older runs, and the names where rows are one. `load` is the load average
that others caused; on a busy machine seconds say little. Where no machine is named, none was
written down."""


def wrapped(text: str, indent: str = "") -> str:
    """A paragraph of at most WIDTH columns."""
    lines = textwrap.wrap(
        text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines)


def number(value: Any) -> str:
    """A cell's text; empty where nothing was measured."""
    return f"{value:,}" if isinstance(value, int) else str("" if value is None else value)


def misses(value: Any, bar: Mapping[str, Any] | None, row: Mapping[str, Any]) -> bool:
    """Whether a figure misses its bar; a bar that names a column is in that column of the row."""
    if bar is None or not isinstance(value, int | float):
        return False
    limits = {
        kind: row.get(limit) if isinstance(limit, str) else limit for kind, limit in bar.items()
    }
    most, least = limits.get("most"), limits.get("least")
    return (most is not None and value > most) or (least is not None and value < least)


def cells(topic: Mapping[str, Any], columns: Sequence[str], row: Mapping[str, Any]) -> list[str]:
    """The texts of one row, in these columns."""
    bars = topic.get("bars", {})
    texts = [
        (number(row.get(name)), misses(row.get(name), bars.get(name), row)) for name in columns
    ]
    return [f"**{text}**" if missed else text for text, missed in texts]


def table(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    head, *rows = ("| " + " | ".join(line) + " |" for line in (columns, *lines))
    return "\n".join((head, "|---" * len(columns) + "|", *rows))


def folded(lines: Sequence[Sequence[str]], name: int, spread: Collection[int]) -> list[list[str]]:
    """Lines that agree but for the columns `name` and `spread` as one: names, least to greatest."""
    same: dict[tuple[str, ...], list[Sequence[str]]] = {}
    for line in lines:
        # What misses its bar stays for itself.
        key = [
            text if place not in spread or text.startswith("**") else ""
            for place, text in enumerate(line)
            if place != name
        ]
        same.setdefault(tuple(key), []).append(line)
    rows = []
    for alike in same.values():
        row = list(alike[0])
        if len(alike) > 1:
            names = [line[name] for line in alike]
            row[name] = "; ".join(names) if len(names) < MANY else f"{len(names)} of them"
            for place in spread:
                values = sorted({line[place] for line in alike}, key=float)
                row[place] = " to ".join((values[0], values[-1])[: len(values)])
        rows.append(row)
    return rows


def bar_text(bars: Mapping[str, Mapping[str, Any]]) -> str:
    words = {"most": "at most", "least": "at least"}
    texts = [
        f"{name} {words[kind]} {number(limit)}"
        for name, bar in bars.items()
        for kind, limit in bar.items()
    ]
    return f" Bars: {'; '.join(texts)}." if texts else ""


def facts(run: Mapping[str, Any]) -> str:
    """When, where and how a run was made."""
    command = run.get("command", "")
    # What "idle" was by number, the file tells.
    load = run["load"].split(",")[0] if run["load"].startswith("idle") else run["load"]
    made = [run["date"], run["machine"], f"load {load}" if load[0].isdigit() else load]
    made += [command if "`" in command else f"`{command}`"] if command else []
    made += [run["statistic"]] if "statistic" in run else []
    return ", ".join(text for text in made if text != "not noted") + "."


def totals(topic: Mapping[str, Any]) -> str:
    """Sums over all runs that count, for a topic that asks for them."""
    names = topic["totals"]
    sums: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    rows = [row for run in topic["runs"] if run.get("in_totals", True) for row in run["rows"]]
    for row in rows:
        if names["right"] in row and names["of"] in row:
            told = names["wrong"] in row  # whether wrong answers were noted
            added = (
                row[names["right"]],
                row[names["of"]],
                row.get(names["wrong"], 0),
                row[names["of"]] * told,
            )
            sums[row[names["by"]]] = [
                old + new for old, new in zip(sums[row[names["by"]]], added, strict=True)
            ]
    text = "`{}`: {} of {} first tries right; where wrong answers were noted, {} of {} wrong."
    return " ".join(text.format(by, *sums[by]) for by in sorted(sums))


def shown(items: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs or rows that are on the page."""
    return [item for item in items if item.get("shown", True)]


def section(name: str, topic: Mapping[str, Any]) -> str:
    """A topic's heading, table and runs. Runs keep the numbers that they have in the file."""
    runs = {place: run for place, run in enumerate(topic["runs"], 1) if run.get("shown", True)}
    rows = {place: shown(run["rows"]) for place, run in runs.items()}
    columns = [
        column
        for column in topic["columns"]
        if any(column in row for of_run in rows.values() for row in of_run)
    ]
    lines = [
        [str(place), *cells(topic, columns, row)]
        for place, of_run in rows.items()
        for row in of_run
    ]
    lines = folded(lines, 1, [columns.index(column) + 1 for column in topic.get("spread", ())])
    made: defaultdict[str, list[str]] = defaultdict(list)
    for place, run in runs.items():
        made[facts(run)].append(str(place))
    several = len(runs) > 1
    told = [wrapped(f"- {', '.join(of)}: {text}", "  ") for text, of in made.items()]
    parts = [
        f"## {topic['title']} (`{name}.json`)",
        wrapped(topic["about"] + bar_text(topic.get("bars", {}))),
    ]
    parts += [wrapped(totals(topic))] if "totals" in topic else []
    parts += [
        table(
            ["run", *columns] if several else columns,
            lines if several else [line[1:] for line in lines],
        ),
        "\n".join(told) if several else wrapped(next(iter(made))),
    ]
    parts += [wrapped(f"Programs: {topic['with']}.")] if "with" in topic else []
    return "\n\n".join(parts)


def main() -> None:
    files = {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in (HERE / "results").glob("*.json")
    }
    known = [wrapped(f"- {name}: {about}", "  ") for name, about in files.pop("machines").items()]
    on_page = {name: topic for name, topic in files.items() if topic.get("shown", True)}
    topics = [
        section(name, topic)
        for name, topic in sorted(on_page.items(), key=lambda item: int(item[1]["order"]))
    ]
    kept = ", ".join(f"`{name}.json`" for name in sorted(files.keys() - on_page.keys()))
    head = [
        "# Benchmarks",
        wrapped(OPENING),
        "## Machines",
        "\n".join(known),
        f"Data without a section: {kept}.",
    ]
    PAGE.write_text("\n\n".join([*head, *topics]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
