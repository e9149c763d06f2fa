# SPDX-License-Identifier: MIT
"""A comparison of two runs' calls as a drawing; needs matplotlib."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from pathlib import Path

from flagfinder.graph.compare import CallDifference, code_name
from flagfinder.shared.errors import UnavailableError


def plot_comparison(rows: Sequence[CallDifference], path: Path) -> None:
    """Draws which user code makes which calls, the good run as circles and the bad one as crosses
    (Uscope, figure 7); larger ones stand for more calls. The file's name tells the format. Raises
    UnavailableError without matplotlib.
    """
    try:
        figures = importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise UnavailableError(
            "The plot can't be drawn",
            str(error),
            "Install it: pip install 'flagfinder[plot]'.",
            "The table needs nothing more.",
        ) from None
    names = [
        list(dict.fromkeys(row.call for row in rows)),
        list(dict.fromkeys(code_name(row) for row in rows)),
    ]
    columns, lines = ({name: place for place, name in enumerate(part)} for part in names)
    figure = figures.Figure(
        figsize=(4 + 0.5 * len(columns), 1.6 + 0.35 * len(lines)), layout="constrained"
    )
    axes = figure.subplots()
    for name, color, style in (
        ("good", "#0b7285", {"marker": "o", "facecolors": "none", "edgecolors": "#0b7285"}),
        ("bad", "#c92a2a", {"marker": "x", "color": "#c92a2a"}),
    ):
        made = [row for row in rows if getattr(row, name).count]
        places = [columns[row.call] for row in made], [lines[code_name(row)] for row in made]
        # A thousand times as many calls are a mark three times as wide.
        sizes = [40 * (1 + math.log10(getattr(row, name).count)) for row in made]
        axes.scatter(*places, s=sizes, **style)
        axes.scatter([], [], s=40, label=f"{name} run", **style)
        for row, x, y, size in zip(made, *places, sizes, strict=True):
            offset = (math.sqrt(size) / 2 + 2, 3 if name == "good" else -9)
            text = f"{getattr(row, name).count:,}"
            axes.annotate(
                text, (x, y), xytext=offset, textcoords="offset points", fontsize=7, color=color
            )
    axes.set_xticks(range(len(columns)), list(columns), rotation=45, ha="right")
    # A name may hold what would be taken for a formula.
    axes.set_yticks(range(len(lines)), [line.replace("$", r"\$") for line in lines])
    axes.set_xlim(-0.5, len(columns))
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.set_xlabel("system call")
    axes.set_ylabel("user code")
    axes.grid(color="#eceff2")
    axes.set_axisbelow(True)
    figure.legend(loc="outside upper right", ncols=2, frameon=False)
    figure.savefig(path)
