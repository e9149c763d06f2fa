"""Programs that wake each other in known ways, and recordings of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness import FLAGFINDER, ROOT, run

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
            built = run(["gcc", "-O1", "-g", "-pthread", "-Wall", "-Werror", "-o", program, source], timeout=60)
            assert built.returncode == 0, built.stderr
        return program

    def record(self, name: str, *words: str, options: tuple[str, ...] = ()) -> Recorded:
        """Records `NAME WORDS`, which must succeed."""
        self._count += 1
        path = self._directory / f"{self._count}.events"
        command = [*FLAGFINDER, "events", "record", "-o", path, *options, "--", self.program(name), *words]
        ran = run(command, timeout=60)
        assert ran.returncode == 0, ran.stderr
        roles = {role: int(tid) for role, tid in (line.split() for line in ran.stdout.splitlines())}
        return Recorded(path, roles, ran.stderr)
