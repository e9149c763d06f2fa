# SPDX-License-Identifier: MIT
"""Renders docs/benchmarks.md from bench/results/*.json: `make report`.

In: one file for each topic, with the runs that were made of it, and machines.json. Out: the page,
whole. A run with `shown` false stays in its file only: a newer or calmer one of the same machine is
on the page. Of several runs the newest is told with its notes. Rows that differ in their first
column only are one.
"""

from __future__ import annotations

import json
import textwrap
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
WIDTH = 98
OPENING = """\
What flagfinder costs, beside its bars and beside other tools, and how often it was right. This
page is rendered from the files of bench/results that its headings name, by `make report`;
[bench/README.md](../bench/README.md) says how to measure. A figure in **bold** misses its bar. Of
each topic the newest calm run is here, if there is one; the others are in the files, and so are
the notes of all runs but the last of a list. `load` is the load average that others caused; on a
busy machine seconds say little."""


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


def cells(topic: Mapping[str, Any], row: Mapping[str, Any]) -> list[str]:
    """The texts of one row, in the topic's columns."""
    bars = topic.get("bars", {})
    texts = [
        (number(row.get(name)), misses(row.get(name), bars.get(name), row))
        for name in topic["columns"]
    ]
    return [f"**{text}**" if missed else text for text, missed in texts]


def table(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    rule = ["---"] * len(columns)
    return "\n".join("| " + " | ".join(line) + " |" for line in (columns, rule, *lines))


def folded(lines: Sequence[Sequence[str]], name: int) -> list[list[str]]:
    """Neighbours that differ in the column `name` only as one."""
    rows: list[list[str]] = []
    for line in lines:
        if rows and [*rows[-1][:name], *rows[-1][name + 1 :]] == [*line[:name], *line[name + 1 :]]:
            rows[-1][name] += f"; {line[name]}"
        else:
            rows.append(list(line))
    return rows


def bar_text(bars: Mapping[str, Mapping[str, Any]]) -> str:
    """The bars in words."""
    words = {"most": "at most", "least": "at least"}
    texts = [
        f"{name} {words[kind]} {number(limit)}"
        for name, bar in bars.items()
        for kind, limit in bar.items()
    ]
    return f" Bars: {'; '.join(texts)}." if texts else ""


def facts(run: Mapping[str, Any], *, with_notes: bool) -> str:
    """When, where and how a run was made."""
    load, command = run["load"], run.get("command", "")
    made = [run["date"], run["machine"], f"load {load}" if load[0].isdigit() else load]
    made += [command if "`" in command else f"`{command}`"] if command else []
    made += [run["statistic"]] if "statistic" in run else []
    return " ".join([", ".join(made) + ".", *(run.get("notes", ()) if with_notes else ())])


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
    text = (
        "`{}` was right in {} of {} first tries. Where wrong answers were noted it named a wrong "
        "word in {} of {}."
    )
    return " ".join(text.format(by, *sums[by]) for by in sorted(sums))


def section(name: str, topic: Mapping[str, Any]) -> str:
    """A topic's heading, table and runs."""
    runs = [run for run in topic["runs"] if run.get("shown", True)]
    lines = [
        [str(place), *cells(topic, row)] for place, run in enumerate(runs, 1) for row in run["rows"]
    ]
    lines = folded(lines, 1)
    made = [
        f"{place}. {facts(run, with_notes=run is runs[-1])}" for place, run in enumerate(runs, 1)
    ]
    columns = ["run", *topic["columns"]]
    if len(runs) == 1:
        lines, made, columns = (
            [line[1:] for line in lines],
            [facts(runs[0], with_notes=True)],
            columns[1:],
        )
    parts = [
        f"## {topic['title']} (`{name}.json`)",
        wrapped(topic["about"] + bar_text(topic.get("bars", {}))),
    ]
    parts += [wrapped(totals(topic))] if "totals" in topic else []
    parts += [
        table(columns, lines),
        "\n".join(wrapped(line, "   " * (len(runs) > 1)) for line in made),
    ]
    parts += [wrapped(f"Programs: {topic['with']}.")] if "with" in topic else []
    return "\n\n".join(parts)


def main() -> None:
    """Writes the page."""
    files = {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in (HERE / "results").glob("*.json")
    }
    known = [wrapped(f"- {name}: {about}", "  ") for name, about in files.pop("machines").items()]
    shown = {name: topic for name, topic in files.items() if topic.get("shown", True)}
    topics = [
        section(name, topic)
        for name, topic in sorted(shown.items(), key=lambda item: int(item[1]["order"]))
    ]
    kept = ", ".join(f"`{name}.json`" for name in sorted(files.keys() - shown.keys()))
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
