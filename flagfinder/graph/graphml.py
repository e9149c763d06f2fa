# SPDX-License-Identifier: MIT
"""The event graph as GraphML."""

from __future__ import annotations

from typing import BinaryIO
from xml.sax.saxutils import XMLGenerator
from xml.sax.xmlreader import AttributesImpl

import numpy as np

from flagfinder.graph.tables import GraphTables, Table
from flagfinder.shared.visible import fit_for_xml

_NAMESPACE = "http://graphml.graphdrawing.org/xmlns"


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
        for column, values in table.items():
            names = {
                "id": f"{element}-{column}",
                "for": element,
                "attr.name": column,
                "attr.type": _type_of(values),
            }
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
                    self._xml.characters(fit_for_xml(str(value)))
                    self.close("data")
            self.close(element)


def _without(table: Table, *names: str) -> Table:
    return {column: values for column, values in table.items() if column not in names}


def write_graphml(tables: GraphTables, file: BinaryIO) -> None:
    known = tables.edges["from"] >= 0  # GraphML has no edges from nowhere
    ends = tables.edges["from"][known].tolist(), tables.edges["to"][known].tolist()
    nodes = _without(tables.vertices, "vertex")
    edges = {
        column: values[known] for column, values in _without(tables.edges, "from", "to").items()
    }
    out = _GraphMl(file)
    out.open("graphml", {"xmlns": _NAMESPACE})
    out.keys("node", nodes)
    out.keys("edge", edges)
    out.open("graph", {"id": "events", "edgedefault": "directed"})
    out.rows("node", [{"id": f"v{vertex}"} for vertex in tables.vertices["vertex"].tolist()], nodes)
    out.rows(
        "edge", [{"source": f"v{a}", "target": f"v{b}"} for a, b in zip(*ends, strict=True)], edges
    )
    out.close("graph")
    out.close("graphml")
    out.end()
