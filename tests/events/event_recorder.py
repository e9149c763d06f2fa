# SPDX-License-Identifier: MIT
"""Programs that wake each other in known ways, and recordings of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import ROOT, command_into, compiled, flagfinder, run

PROGRAMS = ROOT / "tests" / "events" / "programs"


@dataclass(frozen=True)
class Recorded:
    """A recording, and the thread ids that the program printed."""

    path: Path
    roles: dict[str, int]
    stderr: str


class Recorder:
    """Compiles the programs once, and records runs of them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._count = 0

    def program(self, name: str) -> Path:
        """The compiled program of this name."""
        program = self._directory / name
        if not program.exists():
            source = PROGRAMS / f"{name}.c"
            compiled(program, source, "-Wall", "-Werror")
        return program

    def record(
        self, name: str, *words: str, options: tuple[str, ...] = (), under: Sequence[str] = ()
    ) -> Recorded:
        """Records `NAME WORDS`, which must succeed. `under`: the beginning of a command that runs
        it elsewhere.
        """
        self._count += 1
        path = self._directory / f"{self._count}.events"
        command = [
            *under,
            *command_into(path, "events record", *options),
            "--",
            self.program(name),
            *words,
        ]
        ran = run(command, timeout=60)
        assert ran.returncode == 0, ran.stderr
        roles = {role: int(tid) for role, tid in (line.split() for line in ran.stdout.splitlines())}
        return Recorded(path, roles, ran.stderr)


_SWITCH = re.compile(r"cpu\d+ switch (\d+) -> \d+ sleeps (\w+)\(")
_WAKING = re.compile(r"cpu\d+ waking (\d+) by (\d+) (\w+)(?: in (\w+))?")


def wakes(recorded: Recorded, tid: int, call: str) -> Iterator[tuple[int, str, str | None]]:
    """(waker, context, waker's call) of the wake that ended each blocking `call` of the thread.

    What comes before the program is left out: there the recorder holds it back until it is ready.
    """
    lines = flagfinder(
        "events", "dump", recorded.path, "--tid", tid, "--limit", 100000
    ).stdout.splitlines()
    begin = max((number for number, line in enumerate(lines) if f" exec {tid} " in line), default=0)
    blocked = False
    for line in lines[begin:]:
        if (switch := _SWITCH.search(line)) and int(switch[1]) == tid:
            blocked = switch[2] == call
        elif (waking := _WAKING.search(line)) and int(waking[1]) == tid:
            if blocked:
                yield int(waking[2]), waking[3], waking[4]
            blocked = False
