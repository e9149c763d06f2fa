# SPDX-License-Identifier: MIT
"""Renders docs/benchmarks.md from bench/results/*.json: `make report`.

In: one file for each topic, with the runs that were made of it, and machines.json. Out: the page,
whole. What has `shown` false (a topic, a run, a row) is not on the page, and notes are not. Rows
that agree in all columns but the first, and but those that the topic lists in `spread`, are one. Of
a topic with `sum` all runs are one.
"""

from __future__ import annotations

import json
import re
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
What flagfinder costs. `make report` renders this page from the files of bench/results that its
headings name; they also hold notes, older runs, commands, and names where rows are one.
[bench/README.md](../bench/README.md) says how to measure. A bar stands in the head of its column; a
figure in **bold** misses it. `load` is the load average that others caused: on a busy machine
seconds say little. Where no machine is named, none was noted."""


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
    return "\n".join((head, "|-" * len(columns) + "|", *rows))


def folded(
    lines: Sequence[Sequence[str]], name: int, many: str, spread: Collection[int]
) -> list[list[str]]:
    """Lines that agree but for the columns `name` and `spread` as one: names, least to greatest.

    More than a few names are counted, as so many of `many`.
    """
    same: dict[tuple[str | bool, ...], list[Sequence[str]]] = {}
    for line in lines:
        # A figure that misses its bar is one row only with others that miss it.
        key = [
            text if place not in spread else text.startswith("**")
            for place, text in enumerate(line)
            if place != name
        ]
        same.setdefault(tuple(key), []).append(line)
    rows = []
    for alike in same.values():
        row = list(alike[0])
        if len(alike) > 1:
            names = list(dict.fromkeys(line[name] for line in alike))
            row[name] = "; ".join(names) if len(names) < MANY else f"{len(names)} {many}"
            for place in spread:
                values = sorted({line[place].strip("*") for line in alike}, key=float)
                text = " to ".join((values[0], values[-1])[: len(values)])
                row[place] = f"**{text}**" if row[place].startswith("**") else text
        rows.append(row)
    return rows


def head(name: str, bar: Mapping[str, Any]) -> str:
    """A column's name, with its bar."""
    signs = {"most": "≤", "least": "≥"}
    return " ".join((name, *(f"{signs[kind]} {number(limit)}" for kind, limit in bar.items())))


def facts(run: Mapping[str, Any]) -> str:
    """When, where and how a run was made."""
    command = run.get("command", "")
    command = command if "`" in command else command.partition(" ")[0]
    # The file has the load of an idle machine as a number.
    load = run["load"].split(",")[0] if run["load"].startswith("idle") else run["load"]
    made = [run["date"], run["machine"], f"load {load}" if load[0].isdigit() else load]
    made += [command if "`" in command else f"`{command}`"] if command else []
    made += [run["statistic"]] if "statistic" in run else []
    return ", ".join(text for text in made if text and text != "not noted") + "."


def summed(runs: Sequence[Mapping[str, Any]], how: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Runs as one. Rows that agree in `by` are one: cells of `add` are sums, others the last ones.

    The load is from the least of all runs to the greatest. A script that made all is the command.
    """
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in (row for run in runs for row in shown(run["rows"])):
        one = rows.setdefault(tuple(row[name] for name in how["by"]), {})
        one.update(
            (name, cell + one.get(name, 0) if name in how["add"] else cell)
            for name, cell in row.items()
        )
    scripts = {run.get("command", "").partition(" ")[0] for run in runs}
    dates = sorted(run["date"] for run in runs)
    loads = sorted(float(load) for run in runs for load in re.findall(r"[\d.]+", run["load"]))
    return {
        "date": f"{len(runs)} runs, " + " to ".join(sorted({dates[0], dates[-1]})),
        "machine": " and ".join(sorted({run["machine"] for run in runs} - {"not noted"})),
        "load": f"{loads[0]:g} to {loads[-1]:g}",
        "command": scripts.pop() if len(scripts) == 1 else "",
        "rows": [rows[name] for name in sorted(rows)],
    }


def shown(items: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs or rows that are on the page."""
    return [item for item in items if item.get("shown", True)]


def section(name: str, topic: Mapping[str, Any]) -> str:
    """A topic's heading, table and runs. Runs keep the numbers that they have in the file."""
    runs = {place: run for place, run in enumerate(topic["runs"], 1) if run.get("shown", True)}
    if "sum" in topic:
        runs = {1: summed(list(runs.values()), topic["sum"])}
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
    spread = [columns.index(column) + 1 for column in topic.get("spread", ())]
    lines = folded(lines, 1, f"{columns[0]}s", spread)
    made: defaultdict[str, list[str]] = defaultdict(list)
    for place, run in runs.items():
        made[facts(run)].append(str(place))
    several = len(runs) > 1
    told = [wrapped(f"- {', '.join(of)}: {text}", "  ") for text, of in made.items()]
    heads = ["run", *(head(name, topic.get("bars", {}).get(name, {})) for name in columns)]
    parts = [f"## {topic['title']} (`{name}.json`)", wrapped(topic["about"])]
    parts += [
        table(heads[not several :], [line[not several :] for line in lines]),
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
