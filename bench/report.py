# SPDX-License-Identifier: MIT
"""Renders docs/benchmarks.md from bench/results/*.json: `make report`.

In: one file for each topic, with the runs that were made of it. Out: the page, one table: a row for
each bar of a topic, of a topic without bars one for each column of figures. Of rows with one name
the newest run's count. What has `shown` false (a topic, a run, a row) is not on the page.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
WIDTH = 98
MANY = 4  # more names in one cell are the least and the greatest
OPENING = """\
What flagfinder costs. `make report` renders this page from the files of bench/results that the
first column names; they also hold what was measured, where, older runs, commands and loads. A
figure in **bold** misses its bar. `bench/measure.py` says how to measure."""

Row = Mapping[str, Any]


def wrapped(text: str) -> str:
    """A paragraph of at most WIDTH columns."""
    lines = textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


def number(value: Any) -> str:
    """A cell's text."""
    return f"{value:,}" if isinstance(value, int) else str(value)


def misses(value: Any, bar: Mapping[str, Any], row: Row) -> bool:
    """Whether a figure misses its bar; a bar that names a column is in that column of the row."""
    if not isinstance(value, int | float):
        return False
    limits = {
        kind: row.get(limit) if isinstance(limit, str) else limit for kind, limit in bar.items()
    }
    most, least = limits.get("most"), limits.get("least")
    return (most is not None and value > most) or (least is not None and value < least)


def told(value: Any, bar: Mapping[str, Any], row: Row) -> str:
    return f"**{number(value)}**" if misses(value, bar, row) else number(value)


def head(column: str, bar: Mapping[str, Any]) -> str:
    """A column's name, with its bar."""
    signs = {"most": "≤", "least": "≥"}
    return " ".join((column, *(f"{signs[kind]} {number(limit)}" for kind, limit in bar.items())))


def shown(items: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs or rows that are on the page."""
    return [item for item in items if item.get("shown", True)]


def newest(topic: Row) -> tuple[dict[str, Row], str]:
    """The last row of each name, and when the newest was measured. Of a topic with `sum` the rows
    of all runs are one, and cells of `add` are sums.
    """
    names = topic["sum"]["by"] if "sum" in topic else naming(topic)
    add = topic.get("sum", {}).get("add", ())
    rows: dict[str, Row] = {}
    runs: dict[str, Row] = {}
    for run in shown(topic["runs"]):
        for row in shown(run["rows"]):
            name = ", ".join(str(row[part]) for part in names if row.get(part) is not None)
            before = rows.get(name, {})
            sums = {cell: row[cell] + before.get(cell, 0) for cell in add if cell in row}
            rows[name] = {**(before if add else {}), **row, **sums}
            runs[name] = run
    return rows, max(run["date"] for run in runs.values())


def naming(topic: Row) -> list[str]:
    """The columns that tell rows from each other: the first, and the second where it has names."""
    first, second, *_ = topic["columns"]
    rows = [row for run in topic["runs"] for row in run["rows"]]
    is_name = all(isinstance(row.get(second), str) for row in rows)
    return [first, second] if is_name and second not in topic.get("bars", {}) else [first]


def lines(name: str, topic: Row) -> Iterator[tuple[str, ...]]:
    """The topic's rows of the table."""
    rows, date = newest(topic)
    bars = topic.get("bars", {})
    columns = [*bars] or [
        column
        for column in topic["columns"][1:]
        if any(isinstance(row.get(column), int | float) for row in rows.values())
    ]
    of = f"{topic['title']} (`{name}`)"
    for column in columns:
        bar = bars.get(column, {})
        having = {name: row for name, row in rows.items() if row.get(column) is not None}
        if not having:
            continue
        each = [f"{name}: {told(row[column], bar, row)}" for name, row in having.items()]
        text = "; ".join(each)
        is_told = any(isinstance(row[column], str) for row in having.values())
        if len(having) > MANY and not is_told:
            ends = sorted(row[column] for row in having.values())
            missed = [one for one in each if "**" in one]
            span = " to ".join(dict.fromkeys(map(number, (ends[0], ends[-1]))))
            text = "; ".join([span, *missed])
        yield of, head(column, bar), text.replace("|", "\\|"), date
        of, date = "", ""


def main() -> None:
    files = {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in (HERE / "results").glob("*.json")
    }
    del files["machines"]
    topics = sorted(files.items(), key=lambda item: int(item[1]["order"]))
    table = [
        "| topic (file) | figure and bar | newest | measured |",
        "|-|-|-|-|",
        *(
            f"| {' | '.join(line)}".rstrip(" |") + " |"
            for name, topic in topics
            if topic.get("shown", True)
            for line in lines(name, topic)
        ),
    ]
    parts = [
        "# Benchmarks",
        wrapped(OPENING),
        "\n".join(table),
    ]
    PAGE.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
