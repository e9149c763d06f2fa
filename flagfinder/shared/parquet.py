# SPDX-License-Identifier: MIT
"""Tables of columns as Parquet files, by pyarrow where it is installed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from flagfinder.shared.extra import need
from flagfinder.shared.private_file import whole_private


def write_tables(
    folder: Path, tables: Iterable[tuple[str, Mapping[str, object]]], otherwise: str
) -> list[Path]:
    """Writes ``NAME.parquet`` into the folder for each (name, columns of equal length); returns the
    files.

    Tables are taken one by one, so a generator keeps one in memory at a time. Raises
    UnavailableError without pyarrow; ``otherwise`` says what works then.
    """
    arrow, parquet = (
        need(module, "parquet", "Parquet tables can't be written", otherwise)
        for module in ("pyarrow", "pyarrow.parquet")
    )
    folder.mkdir(exist_ok=True)
    written = []
    for name, table in tables:
        path = folder / f"{name}.parquet"
        columns = {column: arrow.array(values) for column, values in table.items()}
        with whole_private(path) as file:
            parquet.write_table(arrow.table(columns), file, compression="zstd")
        written.append(path)
    return written
