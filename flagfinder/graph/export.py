# SPDX-License-Identifier: MIT
"""The event graph for other tools: a trace for the Perfetto UI, GraphML, Parquet tables.

In: a graph. Out: files. Times are those of the graph: CLOCK_MONOTONIC, ns.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from flagfinder.graph.graph import EventGraph
from flagfinder.shared.errors import UsageError
from flagfinder.shared.parquet import write_tables
from flagfinder.shared.private_file import whole_private

Format = Literal["perfetto", "graphml", "parquet"]
FORMATS: tuple[Format, ...] = ("perfetto", "graphml", "parquet")
_SUFFIXES: dict[str, Format] = {
    ".perfetto-trace": "perfetto",
    ".pftrace": "perfetto",
    ".graphml": "graphml",
    ".parquet": "parquet",
}


def format_of(path: Path) -> Format:
    """The format that a file's name asks for. Raises UsageError for one that asks for none."""
    try:
        return _SUFFIXES[path.suffix]
    except KeyError:
        known = ", ".join(_SUFFIXES)
        raise UsageError(
            "The format to export is not known",
            f"{path.name} ends in none of {known}",
            "Add --format, or give the file such a name.",
        ) from None


def export_graph(graph: EventGraph, path: Path, form: Format | None = None) -> list[Path]:
    """Writes the graph and returns the files written.

    Parquet becomes a folder with ``vertices.parquet``, ``edges.parquet`` and ``threads.parquet``,
    and needs pyarrow. Raises UsageError when the name tells no format, UnavailableError without
    pyarrow.
    """
    match form or format_of(path):
        case "perfetto":
            graph.export_perfetto(path)
            return [path]
        case "graphml":
            tables = graph.tables()
            # numpy and Python's XML take longer to import than most commands to run.
            from flagfinder.graph.graphml import write_graphml  # noqa: PLC0415

            with whole_private(path) as file:
                write_graphml(tables, file)
            return [path]
        case "parquet":
            return write_tables(
                path,
                graph.tables().named(),
                "--format perfetto and --format graphml need nothing more.",
            )
