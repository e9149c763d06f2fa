# SPDX-License-Identifier: MIT
"""What is to be written into a process, and where: the word that a thread polls, and the value that
ends its loop.
"""

from __future__ import annotations

from flagfinder import _core
from flagfinder.flags.flag_file import FoundFlag, read_flag
from flagfinder.flags.flags import Flag
from flagfinder.live.spin import SpinReport, SpinThread, spin
from flagfinder.shared.errors import UsageError
from flagfinder.shared.record import dataclass

_ATOMIC_SIZES = (1, 2, 4, 8)


@dataclass(frozen=True)
class Plan:
    """What would be written: ``size`` bytes of ``value`` at ``address``. ``why`` is for people.

    ``started`` (clock ticks since boot) tells the process from a later one of its number.
    ``thread`` polls the word, None when no thread was seen to; ``now`` is the value that it reads,
    None unknown. ``copied`` is the thread to try it out with: the one that was asked for, else
    ``thread``.
    """

    pid: int
    started: int
    address: int
    size: int
    value: int
    name: str
    now: int | None
    thread: SpinThread | None
    copied: int | None
    why: str


def plan_poke(
    pid: int,
    *,
    flag: str | None = None,
    address: int | None = None,
    size: int | None = None,
    thread: int | None = None,
    value: int | None = None,
) -> Plan:
    """Finds the word and the value, and looks which thread polls it.

    ``flag`` is ``FILE#RANK`` of a spin or diff report, resolved anew in this process; else
    ``address`` and ``size``; else what ``spin`` names. Without ``value`` the one with which the
    loop would be left. Raises UsageError when the place or the value is not known, and what
    ``spin`` raises.
    """
    found = read_flag(flag) if flag is not None else None
    chosen = found.flag() if found else None
    report = spin(pid, [thread] if thread is not None else [])
    if found and chosen:
        address = _address(report, found, chosen)
        size = size or chosen.size
    elif address is None:
        chosen = report.flag
        if chosen is None or not chosen.size:
            raise UsageError(
                "There is nothing to write",
                f"no thread of process {pid} polls memory now",
                "Name the word: --flag FILE#RANK, or --address and --size.",
            )
        address, size = chosen.spin_address, chosen.size
    if address is None or size not in _ATOMIC_SIZES:
        raise UsageError(
            "The word can't be written",
            f"its size is {size}",
            "Name it: --address 0x.. --size 1|2|4|8.",
        )
    seen_in, seen = polling(report, address)
    if address % size:
        raise UsageError(
            "The word can't be written at once",
            f"{address:#x} is no multiple of {size}, the word's size",
            "Name another word or size: --address 0x.. --size 1|2|4|8.",
        )
    known = seen or chosen
    if value is None:
        value = known.value_exit if known else None
    if value is None:
        raise UsageError(
            "The value to write is not known",
            known.exit_when or "no condition was understood"
            if known
            else "no thread polls the word",
            "Give it: --value NUMBER.",
        )
    if not 0 <= value < 1 << (8 * size):
        raise UsageError(
            "The value does not fit",
            f"{value:#x} in {size} bytes",
            f"Give at most {8 * size} bits.",
        )
    name = known.name if known else f"{address:#x}"
    if seen_in is not None and seen is not None:
        tests = "polls" if seen in seen_in.flags else "tests"
        why = (
            f"thread {seen_in.tid} ({seen_in.name}) {tests} it and leaves its loop when "
            f"{seen.exit_when}"
        )
    else:
        why = "you named it; no thread was seen to poll it just now"
    return Plan(
        pid,
        report.raw["started"],
        address,
        size,
        value,
        name,
        seen.value_spin if seen else None,
        seen_in,
        thread if thread is not None else seen_in.tid if seen_in else None,
        why,
    )


def _address(report: SpinReport, found: FoundFlag, flag: Flag) -> int:
    """Where the flag lies in this process: the same one, or by module and offset in a fresh one."""
    same = (found.pid, found.started) == (report.pid, report.raw["started"])
    if same and flag.spin_address is not None:
        return flag.spin_address
    if flag.kind == "global" and flag.module is not None and flag.offset is not None:
        return _core.resolve(report.pid, flag.module, flag.offset)
    raise UsageError(
        "The flag can't be found in this process",
        f"{flag.name} was seen in another process, and is no global variable",
        f"flagfinder spin {report.pid} names it here.",
    )


def polling(report: SpinReport, address: int) -> tuple[SpinThread | None, Flag | None]:
    """The thread whose loop tests this word, and what is known of the word."""
    for thread in report.threads:
        for flag in (*thread.flags, *thread.considered):
            if flag.spin_address == address:
                return thread, flag
    return None, None
