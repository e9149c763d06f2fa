# SPDX-License-Identifier: MIT
"""Asks flagfinder, or another tool, about a case, and judges the answer.

In: a case, a verb, what runs beside it. Out: one look, as a row of build/lab/looks.jsonl.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from case import WORK, Case
from judge import FAILED, Judgement, of_chain, of_diagnosis, of_words
from patient import (
    PREFIX,
    CaseError,
    Start,
    Truth,
    ask_for_truth,
    end,
    environment_of,
    input_of_good,
    standard_input,
    started,
)

FLAGFINDER = [sys.executable, "-P", "-m", "flagfinder"]
_PATIENCE = 150.0  # s, for one answer
_UNTIL_IT_SPINS = ["--stop-when-spinning", "2", "--stop-after", "60", "--then", "kill"]
_GUARDED = 8.0  # s, after which `guard` asks


@dataclass(frozen=True)
class Look:
    """One answer. ``load``: idle, or busy beside a process that computes. ``seconds`` is None
    where the verb waits for the program (guard, diff).
    """

    case: str
    part: str
    kind: str
    language: str
    verb: str
    load: str
    turn: int
    result: str
    said: str
    mark: str
    exit: int | None
    seconds: float | None
    pause_ms: float | None
    memory_mib: int | None
    date: str
    commit: str
    without: str

    def row(self) -> str:
        """As a line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)


@dataclass(frozen=True)
class Answer:
    """What a command printed, and what it cost."""

    status: int | None
    text: str
    error: str
    seconds: float
    memory_mib: int


def looks(
    case: Case, verbs: Sequence[str], load: str, turn: int, commit: str, without: str
) -> Iterator[Look]:
    """One look by each verb. A live process is asked by `spin`, `why` and then kept as a core. The
    caller runs it `beside` its load.
    """
    live = [verb for verb in ("spin", "why", "core", "why-core") if verb in verbs]
    if live:
        yield from _of_live(case, live, load, turn, commit, without)
    for verb in verbs:
        if verb not in live:
            yield _look(case, verb, load, turn, commit, without, _ASKED[verb])


def _of_live(
    case: Case, verbs: Sequence[str], load: str, turn: int, commit: str, without: str
) -> Iterator[Look]:
    left = list(verbs)
    try:
        with started(case) as start:
            for verb in verbs:
                if verb in ("core", "why-core"):
                    _keep_core(start)
                yield _look(case, verb, load, turn, commit, without, _LIVE[verb], start)
                left.remove(verb)
    except (CaseError, OSError, subprocess.TimeoutExpired) as error:
        failed = Judgement(FAILED, f"the case: {error}")
        for verb in left:
            yield _row(case, verb, load, turn, commit, without, failed, None, None)


def _keep_core(start: Start) -> None:
    """Keeps the process as a core, once."""
    core = start.folder / "core"
    if core.exists():
        return
    kept = asked(["gcore", "-o", str(core), str(start.truth.pid)])
    made = Path(f"{core}.{start.truth.pid}")
    if not made.exists():
        raise CaseError(f"no core: {kept.error[-200:]}")
    made.rename(core)


@contextlib.contextmanager
def on_one_start(case: Case, verb: str) -> Iterator[Callable[[], str]]:
    """Asks about the same process, core or recordings again and again: each call is one look, and
    gives its result. The environment is that of the moment.
    """

    def result(ask: Any, *given: Any) -> str:
        return _look(case, verb, "idle", 0, "", "", ask, *given).result

    if verb in _LIVE:
        with started(case) as start:
            if verb in ("core", "why-core"):
                _keep_core(start)
            yield lambda: result(_LIVE[verb], start)
    elif verb == "diff":
        with tempfile.TemporaryDirectory(prefix=PREFIX) as name:
            recorded = _recorded(case, Path(name))
            yield lambda: result(_compared, *recorded)
    else:
        yield lambda: result(_ASKED[verb])


def _look(
    case: Case,
    verb: str,
    load: str,
    turn: int,
    commit: str,
    without: str,
    ask: Any,
    *given: Any,
) -> Look:
    try:
        judgement, answer, pause = ask(case, *given)
    except (CaseError, OSError, KeyError, ValueError, subprocess.TimeoutExpired) as error:
        told = f"{type(error).__name__}: {error}"
        judgement, answer, pause = Judgement(FAILED, told), None, None
    return _row(case, verb, load, turn, commit, without, judgement, answer, pause)


def _row(
    case: Case,
    verb: str,
    load: str,
    turn: int,
    commit: str,
    without: str,
    judgement: Judgement,
    answer: Answer | None,
    pause: float | None,
) -> Look:
    return Look(
        case=case.id,
        part=case.part,
        kind=case.kind,
        language=case.language,
        verb=verb,
        load=load,
        turn=turn,
        result=judgement.result,
        said=" ".join(judgement.said.split())[:300],
        mark=judgement.mark,
        exit=answer.status if answer else None,
        seconds=round(answer.seconds, 2) if answer else None,
        pause_ms=pause,
        memory_mib=answer.memory_mib if answer else None,
        date=time.strftime("%Y-%m-%d"),
        commit=commit,
        without=without,
    )


@contextlib.contextmanager
def beside(load: str) -> Iterator[None]:
    """With a process that computes beside it, where the load is `busy`."""
    if load == "idle":
        yield
        return
    own = {**os.environ, "LAB_OWNER": str(os.getpid())}  # see patient.clear_left
    with subprocess.Popen([sys.executable, "-c", "while True: pass"], env=own) as neighbour:
        try:
            yield
        finally:
            neighbour.kill()


def asked(command: Sequence[str], **popen: Any) -> Answer:
    """Runs a command to its end, at most for _PATIENCE."""
    begin = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            command, **{"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err, **popen}
        )
        status: int | None = None
        while time.monotonic() - begin < _PATIENCE:
            pid, ended, used = os.wait4(process.pid, os.WNOHANG)
            if pid:
                process.returncode = status = os.waitstatus_to_exitcode(ended)
                break
            time.sleep(0.01)
        else:
            process.kill()
            _, ended, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(ended)
        out.seek(0)
        err.seek(0)
        return Answer(
            status,
            out.read().decode(errors="replace"),
            err.read().decode(errors="replace"),
            time.monotonic() - begin,
            used.ru_maxrss // 1024,
        )


def _json(answer: Answer) -> dict[str, Any]:
    """Its JSON object; an error's is none."""
    if answer.status is None:
        raise CaseError(f"no answer within {_PATIENCE:g} s")
    try:
        found: dict[str, Any] = json.loads(answer.text)
    except json.JSONDecodeError:
        raise CaseError(f"exit {answer.status}: {answer.error[-300:]}") from None
    if "error" in found or "schema" not in found or found["schema"].endswith("error/1"):
        raise CaseError(f"exit {answer.status}: {answer.text[:300]} {answer.error[-300:]}")
    return found


Asked = tuple[Judgement, Answer, float | None]


def _spin(case: Case, start: Start) -> Asked:
    answer = asked([*FLAGFINDER, "spin", "--json", str(start.truth.pid)])
    found = _json(answer)
    pause = max((one["pause_ms"] for one in found["threads"]), default=0.0)
    return of_words(case, start.truth, found), answer, pause


def _why(case: Case, start: Start) -> Asked:
    answer = asked([*FLAGFINDER, "why", "--json", str(start.truth.pid)])
    return of_chain(case, start.truth, _json(answer), answer.status or 0), answer, None


def _core(case: Case, start: Start) -> Asked:
    answer = asked([*FLAGFINDER, "core", "--json", str(start.folder / "core")])
    return of_words(case, start.truth, _json(answer)), answer, None


def _why_core(case: Case, start: Start) -> Asked:
    command = [*FLAGFINDER, "why", "--json", "--core", str(start.folder / "core")]
    answer = asked(command)
    return of_chain(case, start.truth, _json(answer), answer.status or 0), answer, None


def _guard(case: Case) -> Asked:
    after = ["--after", str(min(case.seconds, _GUARDED)), "--"]
    with started(case, (*FLAGFINDER, "guard", "--json", *after)) as start:
        begin = time.monotonic()
        start.process.wait(_PATIENCE)
        text = (start.folder / "stdout").read_text(errors="replace")
        # What the command printed there comes first.
        found = json.loads(text[text.index('{"schema"') if '{"schema"' in text else 0 :])
    answer = Answer(start.process.returncode, text, "", time.monotonic() - begin, 0)
    if not found["reports"]:
        return Judgement(FAILED, "; ".join(found["notes"]) or "no report"), answer, None
    first = found["reports"][0]
    # As `why` exits: guard's own status is that of the hang.
    is_known = first["root"]["kind"] != "unknown" and not first["root"]["assumed"]
    return of_chain(case, start.truth, first, 0 if is_known else 1), answer, None


def _recorded(case: Case, folder: Path) -> tuple[Path, Path, Truth]:
    """Recordings of the good and of the bad run, and what is true of the bad one."""
    assert case.good is not None
    good, bad = folder / "normal.trace", folder / "spin.trace"
    mark = os.urandom(16).hex()
    environment = environment_of(case, folder, mark)
    try:
        for path, options, command, given in (
            (good, [], case.good, input_of_good(case)),
            (bad, _UNTIL_IT_SPINS, case.bad, standard_input(case.stdin, case.input)),
        ):
            with contextlib.suppress(FileNotFoundError):
                (folder / "truth").unlink()
            command_line = [*FLAGFINDER, "record", "-o", str(path), *options, "--", *command]
            with given as stdin:
                ran = asked(command_line, cwd=case.work, env=environment, stdin=stdin)
            if not path.exists():
                raise CaseError(f"not recorded: {ran.error[-300:]}")
            (folder / "stderr").write_text(ran.error, encoding="utf-8")
    finally:
        end(mark)
    return good, bad, _truth_of_ended(case, folder, environment)


def _truth_of_ended(case: Case, folder: Path, environment: dict[str, str]) -> Truth:
    """What was true of a run that is over: it told so itself, or said so on its stderr."""
    ask_for_truth(case, 0, environment, time.monotonic() + _PATIENCE)
    truth = Truth()
    truth.read((folder / "truth").read_text(encoding="utf-8"))
    return truth


def _diff(case: Case) -> Asked:
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        return _compared(case, *_recorded(case, Path(name)))


def _compared(case: Case, good: Path, bad: Path, truth: Truth) -> Asked:
    answer = asked([*FLAGFINDER, "diff", "--json", str(good), str(bad)])
    return of_words(case, truth, _json(answer)), answer, None


def _find(case: Case) -> Asked:
    assert case.good is not None
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        folder, mark = Path(name), os.urandom(16).hex()
        # Each run says what is true of itself.
        of_good = ("env", f"LAB_TRUTH={folder / 'good'}", *case.good)
        commands = ["--normal", shlex.join(of_good), "--spin", shlex.join(case.bad)]
        environment = environment_of(case, folder, mark)
        command = [*FLAGFINDER, "find", "--native", "--json", *commands]
        try:
            answer = asked(command, cwd=case.work, env=environment)
        finally:
            end(mark)
        (folder / "stderr").write_text(answer.error, encoding="utf-8")
        truth = _truth_of_ended(case, folder, environment)
        return of_words(case, truth, _json(answer)), answer, None


def _diagnose(case: Case) -> Asked:
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        events, graph = Path(name) / "events", Path(name) / "graph"
        seconds = ["--duration", str(case.recorded)]
        record = [*FLAGFINDER, "events", "record", "-o", str(events), *seconds, "--"]
        with started(case, tuple(record)) as start:
            start.process.wait(_PATIENCE)
        asked([*FLAGFINDER, "graph", "build", str(events), "-o", str(graph)])
        answer = asked([*FLAGFINDER, "diagnose", "--auto", "--json", str(graph)])
        return of_diagnosis(case, start.truth, _json(answer)), answer, None


_LIVE = {"spin": _spin, "why": _why, "core": _core, "why-core": _why_core}
_ASKED = {"guard": _guard, "diff": _diff, "find": _find, "diagnose": _diagnose}


# Other tools: what they print counts if the case's telltale is in it.
FOREIGN: dict[str, tuple[str, ...]] = {
    "gdb": ("gdb", "-p", "{pid}", "-batch", "-ex", "thread apply all bt"),
    "py-spy": ("py-spy", "dump", "--pid", "{pid}"),
    "jstack": ("jstack", "{pid}"),
    "strace": ("timeout", "-s", "INT", "1", "strace", "-f", "-p", "{pid}"),
}


def foreign(case: Case, tool: str, turn: int, commit: str) -> Look | None:
    """What another tool tells of the case; None where it is not installed, or can't be asked."""
    if shutil.which(FOREIGN[tool][0]) is None or not case.expect.telltale:
        return None
    if (tool == "py-spy") != ("Python" in case.language) and tool == "py-spy":
        return None
    if tool == "jstack" and case.language != "Java":
        return None
    try:
        with started(case) as start:
            command = [word.replace("{pid}", str(start.truth.pid)) for word in FOREIGN[tool]]
            answer = asked(command)
            text = answer.text + answer.error
            hit = re.search(case.expect.telltale, text)
            line = next((one for one in text.splitlines() if hit and hit[0] in one), "")
            judgement = Judgement("right" if hit else "nothing", line or "not in what it printed")
    except (CaseError, OSError, subprocess.TimeoutExpired) as error:
        judgement, answer = Judgement(FAILED, str(error)), None
    return _row(case, tool, "idle", turn, commit, "", judgement, answer, None)


def looks_file() -> Path:
    """Where the looks of this checkout are kept, so that `make lab` can go on where it ended."""
    WORK.mkdir(parents=True, exist_ok=True)
    return WORK / "looks.jsonl"
