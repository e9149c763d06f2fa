# SPDX-License-Identifier: MIT
"""The environment of the programs that flagfinder starts: the one that the user gave, kept apart
from our own.

``start.py`` sees to it that what is set for the program does not act on us.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from flagfinder.shared import start
from flagfinder.shared.errors import UsageError
from flagfinder.shared.target import caller
from flagfinder.shared.typed import TypedDict

# Python sets it for itself where the locale is C (PEP 538); what it starts would inherit it.
_COERCED = {b"C.UTF-8", b"C.utf8", b"UTF-8"}


def target_environment(settings: Sequence[str] = ()) -> list[bytes]:
    """The program's environment as ``NAME=VALUE`` entries, in the order in which we were given
    them.

    ``settings`` are entries that replace or join them. Raises UsageError for one that is no
    ``NAME=VALUE``.
    """
    kept = start.kept
    entries = _own() if kept is None else kept.split(b"\0")[:-1]
    for setting in settings:
        name, equals, _ = setting.partition("=")
        if not name or not equals:
            raise UsageError(
                "The program's environment isn't understood",
                f"--env {setting}",
                "Write NAME=VALUE.",
            )
        _set(entries, os.fsencode(name), os.fsencode(setting))
    return entries


@contextmanager
def handed_on(settings: Sequence[str] = ()) -> Iterator[int]:
    """A descriptor that what is started now inherits, from which it reads ``target_environment``, a
    NUL behind each.

    Under sudo the environment says that it is the calling user's.
    """
    descriptor = os.memfd_create("flagfinder-environment", 0)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.writelines(
                entry + b"\0" for entry in target_environment([*target_user()[1], *settings])
            )
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


class Identity(TypedDict, total=False):
    """What subprocess is told of a program: whom it runs as, with which environment."""

    user: int
    group: int
    extra_groups: list[int]
    env: dict[bytes, bytes]


def target_user() -> tuple[Identity, list[str]]:
    """Whom a program runs as, for subprocess, and what its environment says of that: under sudo,
    the calling user.
    """
    entry = caller()
    if entry is None:
        return {}, []
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    identity = [f"HOME={entry.pw_dir}", f"USER={entry.pw_name}", f"LOGNAME={entry.pw_name}"]
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": groups}, identity


def _own() -> list[bytes]:
    """As we were started, with what was changed since by whoever uses us as a library."""
    now = dict(os.environb)
    try:
        first = [entry for entry in start.given().split(b"\0") if entry]
    except OSError:
        return [name + b"=" + value for name, value in now.items()]
    names = {entry.partition(b"=")[0] for entry in first}
    if b"LC_CTYPE" not in names and now.get(b"LC_CTYPE") in _COERCED:
        del now[b"LC_CTYPE"]
    entries = [entry for entry in first if entry.partition(b"=")[0] in now or b"=" not in entry]
    for name, value in now.items():
        _set(entries, name, name + b"=" + value)
    return entries


def _set(entries: list[bytes], name: bytes, entry: bytes) -> None:
    for index, other in enumerate(entries):
        if other.partition(b"=")[0] == name:
            entries[index] = entry
            return
    entries.append(entry)
