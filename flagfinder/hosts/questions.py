# SPDX-License-Identifier: MIT
"""What is asked of the tables, as Ibis expressions, which each engine runs in its own SQL.

A wait that something from another host ended is found by what is the same at both ends of a flow.
Where several are the same (a sequence number comes again after 4 GiB) none is believed. A path goes
over to the sender without a look at any clock: the waiting thread's window, as long as it is, ends
there when the message was sent. What a message was under way is thereby the sender's.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import ibis
from ibis import _

from flagfinder.hosts.engine import DUCKDB, connect, kept, readable, table

if TYPE_CHECKING:
    from flagfinder.hosts.fields import (
        HostsShareFields,
        HostsShareRow,
        HostsTopRow,
        HostsWaitsRow,
    )

# Waits and windows are cut where such a stretch of time ends, so that only what is of the same
# stretch is compared; ns. They are longer where that would make far more rows than there are.
_STRETCH = 1 << 28
_MOST_STRETCHES, _STRETCHES_OF_WAIT = 1 << 22, 64
DEEPEST = 16


class Hosts:
    """The tables of a folder, on an engine. Rows that are equal otherwise come in order of name."""

    def __init__(self, folder: Path | str, engine: str = DUCKDB) -> None:
        self._folder = Path(folder)
        self._backend = connect(engine)
        with readable(self._folder):
            waits = table(self._backend, self._folder, "waits")
            self._waits = waits.mutate(dur=waits.end - waits.start)
            self._sends, self._threads = (
                table(self._backend, self._folder, name) for name in ("sends", "threads")
            )

    def top(self, limit: int = 20) -> list[HostsTopRow]:
        """Where threads wait most: by host, name and call."""
        found = self._waits.group_by(["host", "thread", "call"]).aggregate(
            count=_.count(), total=_.dur.sum(), longest=_.dur.max()
        )
        order = [ibis.desc("total"), "host", "thread", "call"]
        return cast("list[HostsTopRow]", self._told(found.order_by(order).limit(limit)))

    def waits(self, limit: int = 20) -> list[HostsWaitsRow]:
        """Who waits for whom, over all hosts."""
        known = self._linked().filter(_.by_host != "")
        found = known.group_by(["host", "thread", "by_host", "by_thread"]).aggregate(
            count=_.count(), total=_.dur.sum(), longest=_.dur.max()
        )
        order = [ibis.desc("total"), "host", "thread", "by_host", "by_thread"]
        return cast("list[HostsWaitsRow]", self._told(found.order_by(order).limit(limit)))

    def path(
        self,
        host: str,
        tid: int,
        start: int | None = None,
        end: int | None = None,
        limit: int = 20,
    ) -> HostsShareFields:
        """What made up the time of a thread from ``start`` to ``end`` (ns, its host's clock;
        default: from its first wait to its last).
        """
        own = self._waits.filter((_.host == host) & (_.tid == tid))
        window = own.group_by(["host", "tid"]).aggregate(
            thread=_.thread.max(), start=_.start.min(), end=_.end.max()
        )
        if start is not None:
            window = window.mutate(start=ibis.greatest(window.start, start))
        if end is not None:
            window = window.mutate(end=ibis.least(window.end, end))
        with readable(self._folder):
            return self._explained(window.filter(_.start < _.end), limit)

    def bottleneck(self, least: int = 1_000_000, limit: int = 20) -> HostsShareFields:
        """What threads did for which others waited, in waits of at least ``least`` ns, directly or
        through further threads.
        """
        long = self._linked().filter((_.dur >= least) & (_.by_host != ""))
        with readable(self._folder):
            return self._explained(long.select("host", "tid", "thread", "start", "end"), limit)

    def _linked(self) -> Any:
        """Waits with who ended them, on whichever host, and when that one did (its clock)."""
        sends = self._sends.group_by(["flow", "position"]).aggregate(
            times=_.count(),
            from_host=_.host.max(),
            from_tid=_.tid.max(),
            from_thread=_.thread.max(),
            sent=_.ts.max(),
        )
        sends = sends.filter(_.times == 1).drop("times")
        got = self._waits.filter(_.flow != "").group_by(["flow", "position"])
        once = got.aggregate(receipts=_.count()).filter(_.receipts == 1).drop("receipts")
        sends = sends.semi_join(once, ["flow", "position"])
        sends = sends.rename(of_flow="flow", of_position="position")
        waits = self._waits
        found = waits.left_join(
            sends, [waits.flow == sends.of_flow, waits.position == sends.of_position]
        )
        is_near = found.from_host.isnull()
        near = ibis.cases((found.by_tid >= 0, found.host), else_="")
        return found.select(
            "host",
            "tid",
            "thread",
            "call",
            "start",
            "end",
            "dur",
            "ended_by",
            by_host=is_near.ifelse(near, found.from_host),
            by_of=is_near.ifelse(found.by_tid, found.from_tid),
            by_thread=is_near.ifelse(found.by_thread, found.from_thread),
            until=is_near.ifelse(found.end, found.sent),
        )

    def _told(self, found: Any) -> list[dict[str, Any]]:
        with readable(self._folder):
            return _rows(found)

    def _explained(self, windows: Any, limit: int) -> HostsShareFields:
        """Follows the windows of threads to those that ended their waits, and so on."""
        windows = kept(self._backend, windows.mutate(above=ibis.literal("|")))
        given: Counter[tuple[str, str]] = Counter()
        found = windows.group_by(["host", "thread"]).aggregate(total=(_.end - _.start).sum())
        for row in _rows(found):
            given[row["host"], row["thread"]] += int(row["total"])
        whole = given.total()
        stretch = self._stretch(whole)
        waits = kept(self._backend, _cut(self._recorded(), stretch))
        shares: Counter[tuple[str, str, str]] = Counter()
        for depth in range(DEEPEST):
            if not given:
                break
            shares.update({(*who, "runs"): total for who, total in given.items()})
            parts = kept(
                self._backend, self._parts(_cut(windows, stretch), waits, depth + 1 < DEEPEST)
            )
            keys = ["host", "thread", "what", "goes_on", "by_host", "by_thread"]
            given = Counter()
            found = parts.group_by(keys).aggregate(
                total=_.total.sum(), known=(_.end - _.start).sum()
            )
            for row in _rows(found):
                total, known = int(row["total"]), int(row["known"])
                shares[row["host"], row["thread"], "runs"] -= total
                if not row["goes_on"]:
                    shares[row["host"], row["thread"], row["what"]] += total
                    continue
                shares[row["by_host"], row["by_thread"], "unknown"] += total - known
                given[row["by_host"], row["by_thread"]] += known
            on = parts.filter(parts.goes_on & (parts.start < parts.end))
            further = on.select(
                "start",
                "end",
                host=on.by_host,
                tid=on.by_of,
                thread=on.by_thread,
                above=on.above + on.own,
            )
            windows = kept(self._backend, further)
        rows = sorted(shares.items(), key=lambda share: (-share[1], share[0]))
        told: list[HostsShareRow] = [
            {"host": host, "thread": thread, "what": what, "total": total}
            for (host, thread, what), total in rows[:limit]
            if total > 0
        ]
        return {"whole": whole, "rows": told}

    def _stretch(self, windows: int) -> int:
        """How long stretches are, by how long all waits and all windows are."""
        waits = self._waits.mutate(ns=self._waits.dur.cast("float64"))
        (row,) = _rows(waits.aggregate(count=_.count(), total=_.ns.sum()))
        most = max(_MOST_STRETCHES, _STRETCHES_OF_WAIT * row["count"])
        least: int = (int(row["total"] or 0) + windows) // most
        return max(_STRETCH, least)

    def _recorded(self) -> Any:
        """Waits with who ended them, and since when that one was recorded (null: it was not)."""
        waits = self._linked().view()
        threads = self._threads.select(of_host="host", of_tid="tid", by_since="start", to="end")
        found = waits.left_join(
            threads,
            [
                waits.by_host == threads.of_host,
                waits.by_of == threads.of_tid,
                waits.until >= threads.by_since,
                waits.until <= threads.to,
            ],
        )
        return found.drop("of_host", "of_tid", "to")

    @staticmethod
    def _parts(cut: Any, waits: Any, may_go_on: bool) -> Any:
        """The parts of windows (``cut``) that their threads waited, and whether the path goes on
        with who ended that: not in a circle. ``start`` and ``end`` are that one's window, as far as
        it was recorded.
        """
        cut = cut.select("host", "tid", "stretch", "above", who="thread", since="start", to="end")
        found = cut.join(
            waits,
            [
                cut.host == waits.host,
                cut.tid == waits.tid,
                cut.stretch == waits.stretch,
                waits.start < cut.to,
                waits.end > cut.since,
            ],
        )
        own = found.host + "/" + found.tid.cast("string") + "|"
        other = "|" + found.by_host + "/" + found.by_of.cast("string") + "|"
        goes_on = (found.by_host != "") & ~(found.above + own).contains(other)
        what = ibis.cases((found.call == "", "blocked"), else_=found.call) + ", " + found.ended_by
        begin = found.until - (found.wait_end - ibis.greatest(found.start, found.since))
        end = found.until - (found.wait_end - ibis.least(found.end, found.to))
        known = ibis.least(ibis.greatest(begin, found.by_since), end)
        return found.select(
            "host",
            "by_host",
            "by_of",
            "by_thread",
            "above",
            thread=found.who,
            own=own,
            what=what,
            total=end - begin,
            start=found.by_since.isnull().ifelse(end, known),
            end=end,
            goes_on=goes_on & ibis.literal(may_go_on),
        )


def _cut(rows: Any, length: int) -> Any:
    """Rows from ``start`` to ``end``, each in as many as it has stretches; ``wait_end`` keeps the
    end of the whole.
    """
    rows = rows.filter(rows.start < rows.end)
    if "wait_end" not in rows.columns:
        rows = rows.mutate(wait_end=rows.end)
    stretches = ibis.range(rows.start // length, (rows.end - 1) // length + 1)
    rows = rows.mutate(stretch=stretches.unnest())
    first = rows.stretch * length
    return rows.mutate(
        start=ibis.greatest(rows.start, first), end=ibis.least(rows.end, first + length)
    )


def _rows(found: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = found.to_pyarrow().to_pylist()
    return rows
