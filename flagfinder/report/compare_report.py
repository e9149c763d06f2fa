# SPDX-License-Identifier: MIT
"""Comparisons of recordings on a screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flagfinder.graph.compare import CallDifference, Calls, Comparison, code_name
from flagfinder.report.terminal import Terminal
from flagfinder.report.units import bar, duration

if TYPE_CHECKING:
    from flagfinder.graph.call_fields import CallsFields, CompareFields


def comparison_fields(found: Comparison) -> CompareFields:
    """What ``compare --json`` prints."""
    return {
        "good_span": found.good_span,
        "bad_span": found.bad_span,
        "rows": [
            {
                "call": row.call,
                "code": row.code,
                "good": _calls_fields(row.good),
                "bad": _calls_fields(row.bad),
                "ratio": row.ratio,
            }
            for row in found.rows
        ],
        "lost": found.lost,
        "notes": list(found.notes),
    }


def _calls_fields(calls: Calls) -> CallsFields:
    return {
        "count": calls.count,
        "total": calls.total,
        "longest": calls.longest,
        "errors": dict(calls.errors),
    }


def _times(row: CallDifference) -> str:
    """``35 times as many``."""
    if row.ratio is None:
        return "only in the bad run"
    if not row.bad.count:
        return "only in the good run"
    return "as many" if row.bad.count == row.good.count else f"{row.ratio:,.3g} times as many"


def _show_row(terminal: Terminal, row: CallDifference, most: int) -> None:
    terminal.line(
        (f"{row.call:<16}", "bold"), (f" {code_name(row)}", ""), (f", {_times(row)}", "dim")
    )
    for label, calls, style in (("good", row.good, "cyan"), ("bad", row.bad, "red")):
        total, longest = duration(calls.total), duration(calls.longest)
        numbers = f"  {label:<5}{calls.count:>10,} calls {total:>9}, longest {longest:>9} "
        terminal.line((numbers, ""), (bar(calls.total, most), style))
        if calls.errors:
            failed = ", ".join(
                f"{name} {number:,}" for name, number in sorted(calls.errors.items())
            )
            terminal.result(f"       failed: {failed}")


def show_comparison(terminal: Terminal, found: Comparison, limit: int) -> None:
    """What differs most first, two bars each."""
    rows = found.rows[:limit]
    most = max((calls.total for row in rows for calls in (row.good, row.bad)), default=0)
    spans = f"good run {duration(found.good_span)}, bad run {duration(found.bad_span)}"
    terminal.line((spans, "dim"))
    for row in rows:
        _show_row(terminal, row, most)
    if len(found.rows) > limit:
        terminal.message(f"{len(found.rows) - limit:,} more rows; --limit shows them")
    for note in found.notes:
        terminal.warning(note)
    if found.lost:
        terminal.warning(f"{found.lost:,} events were lost: numbers are too small")
