# SPDX-License-Identifier: MIT
"""Finds a flag of ``flagfinder diff`` or ``flagfinder spin`` again, in another process or in the
same.

In: a flag from a file, and a pid. Out: a word or sites for ``watch.py``. What has a module and an
offset is found in any process of the program; heap and stack objects have no fixed place, so only
in the process of the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flagfinder.flags.code import parse_hex
from flagfinder.flags.flag_file import FoundFlag
from flagfinder.shared.errors import UsageError
from flagfinder.watch.watch import address_word, module_word, site, tls_word

if TYPE_CHECKING:
    from flagfinder.watch.fields import SiteRequest, WordRequest


def flag_word(flag: FoundFlag, pid: int, thread: int | None) -> WordRequest:
    """The word of a flag in the process ``pid``. ``thread`` chooses whose thread-local one. Raises
    UsageError.
    """
    raw = flag.raw
    kind, module, size = raw.get("kind"), raw.get("module"), raw.get("size") or 0
    offset = parse_hex(raw.get("offset"))
    if kind == "syscall" or not size:
        raise UsageError(
            f"{flag.name} can't be watched",
            "it is the result of a system call, not a word of memory",
            "Watch who else uses the descriptor instead: `flagfinder spin PID` describes it.",
        )
    if kind == "global" and module is not None and offset is not None:
        return module_word(module, offset, size)
    addresses = raw.get("address")
    address = parse_hex(addresses.get("spin") if addresses else None)
    if thread is None and address is not None and _is_same_process(flag, pid):
        return address_word(address, size)
    if kind == "tls" and module is not None and offset is not None:
        return tls_word(
            module, offset, size, thread if thread is not None else _thread_like(flag, pid)
        )
    raise UsageError(
        f"{flag.name} can't be found in process {pid}",
        f"{_HOMES.get(str(kind), 'such memory')} has no fixed place, and the file is about another "
        "process",
        "Watch the code that uses it, whichever object: add --all-objects, or --site "
        "MODULE+OFFSET.\n"
        "Or name the address in this process: --address 0x.. --size N.",
    )


_HOMES = {"heap": "a heap object", "stack": "a stack object", "shared": "shared memory"}


def flag_sites(flag: FoundFlag) -> list[SiteRequest]:
    """The instructions that read and write the flag, in whichever object. Raises UsageError when
    none has a module.
    """
    codes = [*(flag.raw.get("readers") or ())]
    codes += [code for writer in flag.raw.get("writers") or () if (code := writer.get("code"))]
    places = {
        (module, parse_hex(code["offset"])): None
        for code in codes
        if (module := code.get("module"))
    }
    if not places:
        raise UsageError(
            f"The code that uses {flag.name} is not known",
            "the file names no reader or writer in a module",
            "Name the instruction: --site MODULE+OFFSET.",
        )
    return [site(module, offset) for module, offset in places if offset is not None]


def _is_same_process(flag: FoundFlag, pid: int) -> bool:
    """By pid where the file has one, else by the polling thread, which still lives then."""
    if flag.pid is not None:
        return flag.pid == pid
    return flag.tid is not None and Path(f"/proc/{pid}/task/{flag.tid}").exists()


def _thread_like(flag: FoundFlag, pid: int) -> int:
    """The only thread with the polling thread's name."""
    threads: dict[int, str] = {}
    for task in sorted(Path(f"/proc/{pid}/task").glob("*"), key=lambda path: int(path.name)):
        try:
            threads[int(task.name)] = (task / "comm").read_text().strip()
        except OSError:
            continue  # it ended meanwhile
    alike = [tid for tid, name in threads.items() if name == flag.thread]
    if len(alike) == 1:
        return alike[0]
    raise UsageError(
        f"{flag.name} is thread-local, and no thread was named",
        f"process {pid} has the threads "
        + ", ".join(f"{tid} {name}" for tid, name in threads.items()),
        "Add --thread TID.",
    )
