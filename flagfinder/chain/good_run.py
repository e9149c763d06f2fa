# SPDX-License-Identifier: MIT
"""A good run at its own speed: who writes the words that a bad run polls.

In: a command, and the flags that ``spin`` named in another process of the program. Out: who read
and wrote their words. A global is watched from the program's first instruction. Other words have
no fixed place: the instruction that reads one is hooked until it tells where it lies. Blind spots:
words that are written before they are first read, by code that was not known beforehand; libraries
that the program loads later.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from flagfinder import _core
from flagfinder.flags.code import parse_hex
from flagfinder.interpreters.which import mapped_files
from flagfinder.live.tree import Process
from flagfinder.shared.errors import TargetError
from flagfinder.shared.gated import GatedProgram, gated
from flagfinder.shared.record import dataclass, field, replace
from flagfinder.watch.watch import Watch, WatchRequest, module_word, site

if TYPE_CHECKING:
    from flagfinder.flags.fields import CodeFields, FlagFields
    from flagfinder.watch.fields import EventFields, SiteRequest, WordRequest

_MOST_WORDS = 4  # debug registers of a processor
_PATIENCE = 0.05  # s that Ctrl-C may go unnoticed


@dataclass
class Wrote:
    """Writes of one value by one instruction of one thread to one word; ``stack`` is that of the
    first of them.
    """

    tid: int
    thread: str
    code: CodeFields
    stack: list[CodeFields]
    value: int | None
    first: int
    last: int
    count: int = 1


@dataclass
class Read:
    """Reads of a word by one thread: when the first and the last were seen."""

    thread: str
    first: int
    last: int


@dataclass
class SeenWord:
    """A word of the good run. ``readers`` are by thread."""

    address: int
    readers: dict[int, Read] = field(default_factory=dict)
    writes: dict[tuple[object, ...], Wrote] = field(default_factory=dict)
    # Writes by hooked instructions. If the word's writes trapped, `writes` has them as well.
    early: dict[tuple[object, ...], Wrote] = field(default_factory=dict)

    def written(self) -> list[Wrote]:
        """The writes, ordered by the first of each. A hooked instruction runs from a copy outside
        of all modules; its hook tells where the instruction itself stands.
        """
        hooked = {(one.tid, one.value): one for one in self.early.values()}

        def placed(one: Wrote) -> Wrote:
            hook = hooked.get((one.tid, one.value)) if one.code["module"] is None else None
            return replace(one, code=hook.code, stack=hook.stack) if hook is not None else one

        return sorted(map(placed, (self.writes or self.early).values()), key=lambda one: one.first)


@dataclass(frozen=True)
class GoodRun:
    """The result of a good run. ``words`` has those of each flag, in the order of the flags.
    ``read`` tells whether the instruction that reads it was seen; None: it was not watched for
    that.
    """

    pid: int
    status: int
    words: list[dict[int, SeenWord]]
    read: list[bool | None]
    lost: int
    notes: list[str]


class _Plan:
    """The words and instructions that are watched for each flag: words by name first, then hooked
    instructions.
    """

    def __init__(self, flags: Sequence[FlagFields], modules: set[str]) -> None:
        self.words: list[WordRequest] = []
        self.sites: list[SiteRequest] = []
        self.of_word: list[int] = []
        self.of_site: list[set[int]] = []
        self.absent: set[str] = set()
        for number, flag in enumerate(flags):
            offset = parse_hex(flag["offset"])
            module = flag["module"]
            if flag["kind"] == "global" and module is not None and offset is not None:
                if self._is_there(module, modules) and len(self.words) < _MOST_WORDS:
                    self.words.append(module_word(module, offset, flag["size"]))
                    self.of_word.append(number)
                continue
            for code in flag["readers"]:
                self._hook(number, code, modules, follow=True)
            for owed in flag.get("owed") or ():
                self._hook(number, owed["code"], modules, follow=False)

    def _is_there(self, module: str, modules: set[str]) -> bool:
        there = module in modules or Path(module).name in {Path(name).name for name in modules}
        if not there:
            self.absent.add(module)
        return there

    def _hook(
        self, number: int, code: CodeFields | None, modules: set[str], *, follow: bool
    ) -> None:
        offset = parse_hex(code["offset"]) if code is not None else None
        module = code["module"] if code is not None else None
        if module is None or offset is None or not self._is_there(module, modules):
            return
        request = site(module, offset, follow=follow)
        for known, of in zip(self.sites, self.of_site, strict=True):
            if (known["module"], known["offset"]) == (module, offset):
                of.add(number)
                return
        self.sites.append(request)
        self.of_site.append({number})


def run_well(
    command: Sequence[str],
    flags: Sequence[FlagFields],
    program: str,
    environment: Sequence[str],
    announce: Callable[[str], None],
) -> GoodRun:
    """Runs the command until the program that polls (``program`` is its file's name) has ended.

    Raises TargetError when the command never starts that program, and what ``Watch`` raises.
    """
    with gated(command, settings=environment) as gate:
        assert gate is not None
        process = _at_its_entry(gate, program)
        try:
            run = _watched(process, gate, flags, announce)
        except BaseException:
            if process.pid != gate.process.pid:
                with suppress(ProcessLookupError):
                    process.send(signal.SIGKILL)
            raise
    return run


def _at_its_entry(gate: GatedProgram, program: str) -> Process:
    entry = _core.Entry(gate.process.pid)
    gate.release()
    while not entry.is_over():
        pid = entry.wait(program, _PATIENCE)
        if pid is not None:
            return Process.of(pid)  # it is stopped there
    gate.process.wait()
    raise TargetError(
        "The good run never started the program that polls",
        f"the command ended without running {program}",
        "Name a command that runs the same program: --normal CMD.",
    )


def _watched(
    process: Process,
    gate: GatedProgram,
    flags: Sequence[FlagFields],
    announce: Callable[[str], None],
) -> GoodRun:
    pid = process.pid
    plan = _Plan(flags, set(mapped_files(pid)))
    notes = [
        f"{module} is not loaded when the program starts: its words were not watched"
        for module in plan.absent
    ]
    words: list[dict[int, SeenWord]] = [{} for _ in flags]
    lost = 0
    if plan.words or plan.sites:
        with Watch(pid, WatchRequest(plan.words, plan.sites), "perf") as watch, _going_on(process):
            announce(f"the good run is process {pid}")
            collected = _Collected(watch, plan, words)
            for lines in watch.batches():
                for line in lines:
                    collected.take(json.loads(line))
            lost = watch.summary()["lost"]["total"]
    else:
        with _going_on(process):
            pass
    status = gate.process.wait()
    hooked = set().union(*plan.of_site) if plan.of_site else set()
    read = [
        any(word.readers for word in words[n].values()) if n in hooked else None
        for n in range(len(flags))
    ]
    return GoodRun(pid, status, words, read, lost, notes)


@contextmanager
def _going_on(process: Process) -> Iterator[None]:
    """Lets the process go on, which stood at its entry."""
    process.send(signal.SIGCONT)
    yield


class _Collected:
    """Events, by flag and word."""

    def __init__(self, watch: Watch, plan: _Plan, words: list[dict[int, SeenWord]]) -> None:
        self._words = words
        self._of_watch: dict[int, set[int]] = {}
        self._of_address: dict[int, set[int]] = {}
        self._sites = range(len(plan.words) + 1, len(plan.words) + len(plan.sites) + 1)
        for number, (shown, flag) in enumerate(
            zip(watch.header["watches"], plan.of_word, strict=False), 1
        ):
            address = parse_hex(shown["address"]) if shown["type"] == "word" else None
            assert address is not None
            self._of_address[address] = {flag}
            self._of_watch[number] = {flag}
            words[flag][address] = SeenWord(address)
        self._address = dict(zip(self._of_watch, self._of_address, strict=True))
        for number, flags in zip(self._sites, plan.of_site, strict=True):
            self._of_watch[number] = flags

    def take(self, event: EventFields) -> None:
        watch = event["watch"]
        address = self._address.get(watch, parse_hex(event.get("address")))
        if address is None:
            return
        by_site = watch in self._sites
        flags = (
            self._of_watch[watch]
            if watch in self._of_watch
            else self._of_address.get(address, set())
        )
        if by_site:
            self._of_address.setdefault(address, set()).update(flags)
        for flag in flags:
            word = self._words[flag].setdefault(address, SeenWord(address))
            if event["event"] == "data_flag_read":
                read = word.readers.setdefault(
                    event["tid"], Read(event["thread"], event["ts"], event["ts"])
                )
                read.last = event["ts"]
            else:
                _add(word.early if by_site else word.writes, event)


def _add(writes: dict[tuple[object, ...], Wrote], event: EventFields) -> None:
    code, value = event["code"], parse_hex(event["value"])
    key = (event["tid"], code["module"], code["offset"], value)
    known = writes.get(key)
    if known is None:
        writes[key] = Wrote(
            event["tid"], event["thread"], code, event["stack"], value, event["ts"], event["ts"]
        )
    else:
        known.last, known.count = event["ts"], known.count + 1
