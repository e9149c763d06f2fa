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
_PIECE = 4096  # rows that are in words at a time


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

    def rows(self, element: str, ends: Table, table: Table) -> None:
        """An element for each row, with attributes that name vertices; what is empty is left out.
        A column as a list takes many times its memory.
        """
        for first in range(0, len(next(iter(ends.values()))), _PIECE):
            columns = [values[first : first + _PIECE].tolist() for values in table.values()]
            for place, row in enumerate(zip(*columns, strict=True), first):
                self.open(element, {name: f"v{vertex[place]}" for name, vertex in ends.items()})
                for column, value in zip(table, row, strict=True):
                    if value != "":
                        self.open("data", {"key": f"{element}-{column}"})
                        self._xml.characters(fit_for_xml(str(value)))
                        self.close("data")
                self.close(element)


def write_graphml(tables: GraphTables, file: BinaryIO) -> None:
    known = tables.edges["from"] >= 0  # GraphML has no edges from nowhere
    edges = {column: values[known] for column, values in tables.edges.items()}
    ends = {"source": edges.pop("from"), "target": edges.pop("to")}
    nodes = {column: values for column, values in tables.vertices.items() if column != "vertex"}
    out = _GraphMl(file)
    out.open("graphml", {"xmlns": _NAMESPACE})
    out.keys("node", nodes)
    out.keys("edge", edges)
    out.open("graph", {"id": "events", "edgedefault": "directed"})
    out.rows("node", {"id": tables.vertices["vertex"]}, nodes)
    out.rows("edge", ends, edges)
    out.close("graph")
    out.close("graphml")
    out.end()
