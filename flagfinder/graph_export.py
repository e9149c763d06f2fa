"""The event graph for other tools: a trace for the Perfetto UI, GraphML, Parquet tables.

In: a graph. Out: files. Times are those of the graph: CLOCK_MONOTONIC, ns.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, Literal
from xml.sax.saxutils import XMLGenerator
from xml.sax.xmlreader import AttributesImpl

import numpy as np

from flagfinder.errors import UsageError
from flagfinder.graph import EventGraph
from flagfinder.graph_tables import GraphTables, Table
from flagfinder.parquet import write_tables

Format = Literal["perfetto", "graphml", "parquet"]
FORMATS: tuple[Format, ...] = ("perfetto", "graphml", "parquet")
_SUFFIXES: dict[str, Format] = {
    ".perfetto-trace": "perfetto",
    ".pftrace": "perfetto",
    ".graphml": "graphml",
    ".parquet": "parquet",
}
_NAMESPACE = "http://graphml.graphdrawing.org/xmlns"


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

    Parquet becomes a folder with ``vertices.parquet``, ``edges.parquet`` and ``threads.parquet``, and needs pyarrow.
    Raises UsageError when the name tells no format, UnavailableError without pyarrow.
    """
    match form or format_of(path):
        case "perfetto":
            graph.export_perfetto(path)
            return [path]
        case "graphml":
            with path.open("wb") as file:
                _write_graphml(graph.tables(), file)
            return [path]
        case "parquet":
            return write_tables(
                path, graph.tables().named(), "--format perfetto and --format graphml need nothing more."
            )


def _type_of(values: np.ndarray) -> str:
    return {"i": "long", "u": "long", "b": "boolean"}.get(values.dtype.kind, "string")


class _GraphMl:
    """Elements of GraphML, one after the other: as a tree a graph may be larger than memory."""

    def __init__(self, file: BinaryIO) -> None:
        self._xml = XMLGenerator(file, "utf-8", short_empty_elements=True)
        self._xml.startDocument()

    def open(self, name: str, attributes: dict[str, str]) -> None:
        self._xml.startElement(name, AttributesImpl(attributes))

    def close(self, name: str) -> None:
        self._xml.endElement(name)

    def end(self) -> None:
        self._xml.endDocument()

    def keys(self, element: str, table: Table) -> None:
        """Declares the columns."""
        for column, values in table.items():
            names = {"id": f"{element}-{column}", "for": element, "attr.name": column, "attr.type": _type_of(values)}
            self.open("key", names)
            self.close("key")

    def rows(self, element: str, attributes: list[dict[str, str]], table: Table) -> None:
        """An element for each row; what is empty is left out."""
        columns = [values.tolist() for values in table.values()]
        for words, row in zip(attributes, zip(*columns, strict=True), strict=True):
            self.open(element, words)
            for column, value in zip(table, row, strict=True):
                if value != "":
                    self.open("data", {"key": f"{element}-{column}"})
                    self._xml.characters(str(value))
                    self.close("data")
            self.close(element)


def _without(table: Table, *names: str) -> Table:
    return {column: values for column, values in table.items() if column not in names}


def _write_graphml(tables: GraphTables, file: BinaryIO) -> None:
    known = tables.edges["from"] >= 0  # GraphML has no edges from nowhere
    ends = tables.edges["from"][known].tolist(), tables.edges["to"][known].tolist()
    nodes = _without(tables.vertices, "vertex")
    edges = {column: values[known] for column, values in _without(tables.edges, "from", "to").items()}
    out = _GraphMl(file)
    out.open("graphml", {"xmlns": _NAMESPACE})
    out.keys("node", nodes)
    out.keys("edge", edges)
    out.open("graph", {"id": "events", "edgedefault": "directed"})
    out.rows("node", [{"id": f"v{vertex}"} for vertex in tables.vertices["vertex"].tolist()], nodes)
    out.rows("edge", [{"source": f"v{a}", "target": f"v{b}"} for a, b in zip(*ends, strict=True)], edges)
    out.close("graph")
    out.close("graphml")
    out.end()
