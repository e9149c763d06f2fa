# SPDX-License-Identifier: MIT
"""Numbers as people read them."""

from __future__ import annotations

_BAR = 24  # columns of the longest


def size(count: int) -> str:
    """Bytes: ``812 B``, ``1.4 MiB``."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


def count(number: int, noun: str, nouns: str | None = None) -> str:
    """``1 thread``, ``12,400 threads``; ``nouns``: of several, if that is no ``s`` more."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {nouns or noun + 's'}"


def duration(nanoseconds: int) -> str:
    """``85 ms``, ``3.2 s``, ``2 min 5 s``."""
    seconds = nanoseconds / 1e9
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"


def relative(ts: int, since: int) -> str:
    """When something was, seen from another time: ``320 ms before``, ``1.2 s later``."""
    return f"{duration(abs(ts - since))} {'before' if ts < since else 'later'}"


def short_time(nanoseconds: int) -> str:
    """``85 ns``, ``1.2 us``, ``85 ms``, ``3.2 s``, ``2 min 5 s``."""
    if nanoseconds >= 60_000_000_000:
        return duration(nanoseconds)
    for unit, name in ((1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us")):
        if nanoseconds >= unit:
            value = nanoseconds / unit
            return f"{value:.1f} {name}" if value < 10 else f"{value:.0f} {name}"
    return f"{nanoseconds} ns"


def bar(value: int, most: int) -> str:
    """A bar whose length stands for the value: 24 columns stand for ``most``."""
    eighths = 8 * _BAR * value // most if most else 0
    rest = "▏▎▍▌▋▊▉"[eighths % 8 - 1] if eighths % 8 else ""
    return "█" * (eighths // 8) + rest


def hexadecimal(number: int | None) -> str:
    """``0x1f``; ``unknown`` for None."""
    return "unknown" if number is None else f"{number:#x}"
