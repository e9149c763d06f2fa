# SPDX-License-Identifier: MIT
"""Programs that hang for a known reason, and what a diagnosis of each has to say.

Every scene runs beside a crowd: threads of the same program that have nothing to do with the hang
(programs/crowd.h).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from event_recorder import Recorded, Recorder

MS = 1_000_000  # ns
LAZY, TARGET = "lazy", "target"


@dataclass(frozen=True)
class Scene:
    """``words`` start it, with FILE for a file's path. The main thread does ``of_main`` for at
    least ``least`` ns, because ``culprit`` does ``of_culprit``. ``others``: the roles of those who
    have a part in the hang, too; whoever else is named is innocent. ``seconds``: it hangs for ever,
    and is recorded for so long.
    """

    program: str
    words: tuple[str, ...]
    of_main: str
    of_culprit: str
    others: tuple[str, ...] = ()
    culprit: str = "culprit"
    is_circular: bool = False
    least: int = 300 * MS
    seconds: float | None = None
    modes: tuple[str, ...] = (LAZY, TARGET)

    @property
    def name(self) -> str:
        """The program's name and its words."""
        return "-".join((self.program, *(word for word in self.words if word != "FILE")))

    def record(self, recorder: Recorder, syscalls: str, file: Path) -> Recorded:
        """Runs it once, in its crowd."""
        ends = () if self.seconds is None else ("--duration", str(self.seconds))
        words = [str(file) if word == "FILE" else word for word in self.words]
        options = ("--syscalls", syscalls, *ends)
        return recorder.record(self.program, *words, options=options, under=("env", "CROWD=1"))

    def innocents(self, recorded: Recorded, found: dict[str, Any]) -> list[str]:
        """The innocents that a diagnosis names: roles or names of threads without a part in the
        hang.
        """
        roles = {tid: role for role, tid in recorded.roles.items()}
        named = [roles.get(culprit["tid"], culprit["thread"]) for culprit in found["culprits"]]
        return [name for name in named if name not in {self.culprit, *self.others}]

    def told(self, found: dict[str, Any]) -> tuple[Any, ...]:
        """What a diagnosis says of the hang and of its root."""
        root = found["culprits"][0]
        return (
            found["thread"]["tid"],
            found["class"],
            root["tid"],
            root["class"],
            found["circular"],
        )

    def truth(self, recorded: Recorded) -> tuple[Any, ...]:
        """What a diagnosis has to say of it."""
        roles = recorded.roles
        return (roles["main"], self.of_main, roles[self.culprit], self.of_culprit, self.is_circular)


def _scene(line: str, of_main: str, of_culprit: str, *others: str, **more: Any) -> Scene:
    program, *words = line.split()
    return Scene(program, tuple(words), of_main, of_culprit, others, **more)


def _endless(line: str, *others: str, is_circular: bool = False) -> Scene:
    """A scene that hangs for ever, as its culprit does."""
    return _scene(
        line, "LongWait", "LongWait", *others, is_circular=is_circular, least=1200 * MS, seconds=1.5
    )


SCENES = [
    _scene("hangs chain computes", "LongWait", "LongRunning", "first", "second"),
    _scene("hangs chain sleeps sockets", "LongWait", "LongWait", "first", "second"),
    _scene("hangs chain polls", "LongWait", "RepeatedYield", "first", "second"),
    _scene("hangs lock", "LongWait", "LongRunning", "holder"),
    _scene("hangs alone", "LongRunning", "LongRunning", culprit="main"),
    _scene("hangs circle", "LongWait", "LongWait", "main", is_circular=True),
    _scene("hangs two", "LongWait", "LongRunning"),
    _scene("scenes key", "LongRunning", "LongRunning"),
    _scene("scenes ticks", "LongWait", "LongRunning"),
    _scene("scenes request", "LongWait", "LongWait", "main", is_circular=True),
    _scene("scenes connection", "LongWait", "LongWait", "keeper", is_circular=True),
    _scene("scenes datagram", "RepeatedYield", "RepeatedYield"),
    _scene("scenes kinds", "LongWait", "LongWait"),
    _scene("scenes ended", "LongWait", "LongRunning"),
    _scene("scenes late", "RepeatedYield", "RepeatedYield"),
    _endless("endless deadlock", "other", is_circular=True),
    _endless("endless unix"),
    _endless("endless tcp"),
    _endless("endless backlog"),
    _endless("endless child"),
    _endless("endless file FILE"),
    _scene("locks unwoken", "LongWait", "LongRunning", culprit="holder", least=40 * MS),
    _scene("calls null", "HotCalls", "HotCalls", modes=(TARGET,)),
    _scene("calls passed", "LongWait", "HotCalls", modes=(TARGET,)),
]
