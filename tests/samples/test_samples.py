"""Each sample recorded in both modes and diffed; the flag must be rank 1, as the truth file and the program itself say.

FF_REPEAT=N records each N times anew (ASLR on): the bar is 5 of 5.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from harness import ROOT, Recording, announced_flags, assert_consistent, code_symbols, diff, leaves, record, run

REPEAT = int(os.environ.get("FF_REPEAT", "1"))
PROGRAMS = run(["make", "-s", "-C", str(ROOT / "samples"), "list"], timeout=60).stdout.split()


def truth_of(program: str) -> dict[str, Any]:
    path = ROOT / "samples" / f"{program.split('@', maxsplit=1)[0]}.json"
    truth: dict[str, Any] = json.loads(path.read_text())
    return truth


def is_positive(program: str) -> bool:
    return "kind" in truth_of(program)


def cases(positive: bool) -> list[Any]:
    return [
        pytest.param((program, stripped, turn), id=f"{program}{'-stripped' * stripped}{f'-{turn}' * (REPEAT > 1)}")
        for program in PROGRAMS
        if is_positive(program) == positive
        for stripped in (False, True)
        for turn in range(REPEAT)
    ]


@dataclass(frozen=True)
class Pair:
    """Both recordings of a sample, what diff said, and the truth."""

    program: Path
    stripped: bool
    normal: Recording
    spin: Recording
    result: dict[str, Any]
    truth: dict[str, Any]

    @property
    def flag(self) -> dict[str, Any]:
        """The flag of rank 1."""
        first: dict[str, Any] = self.result["flags"][0]
        assert first["rank"] == 1
        return first

    def explain(self) -> str:
        """What diff named, for a failing assertion."""
        named = [(f["rank"], f["name"], f["kind"], f["address"]["spin"], f["exit_when"]) for f in self.result["flags"]]
        return f"{self.result['verdict']}: {self.result['reason']}; {named}"


def record_both(
    request: pytest.FixtureRequest, samples: Path, where: Path, spin_options: list[str], seconds: float
) -> Pair:
    name, stripped, _ = request.param
    program = samples / ("stripped" if stripped else ".") / name
    normal = record(where / "normal.trace", [program, "normal"])
    assert normal.exit_code == 0, normal.stderr
    spin = record(where / "spin.trace", [program, "spin"], *spin_options, kill_after=seconds)
    for recording in (normal, spin):
        assert_consistent(recording.trace)
    return Pair(program, stripped, normal, spin, diff(normal.trace, spin.trace), truth_of(name))


@pytest.fixture(scope="module")
def pair(
    request: pytest.FixtureRequest,
    samples: Path,
    tracer: None,  # noqa: ARG001
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Pair]:
    where = tmp_path_factory.mktemp("pair")
    yield record_both(request, samples, where, ["--stop-when-spinning", "1", "--then", "kill"], 15)
    shutil.rmtree(where)


@pytest.fixture(scope="module")
def negative(
    request: pytest.FixtureRequest,
    samples: Path,
    tracer: None,  # noqa: ARG001
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Pair]:
    where = tmp_path_factory.mktemp("negative")
    yield record_both(request, samples, where, [], 3)
    shutil.rmtree(where)


positives = pytest.mark.parametrize("pair", cases(positive=True), indirect=True)


@positives
def test_recorder_notices_the_spinning(pair: Pair) -> None:
    assert pair.spin.ended_by_itself, "--stop-when-spinning did not end the recording in 15 s"


@positives
def test_verdict_and_loop(pair: Pair) -> None:
    assert pair.result["verdict"] in pair.truth["verdict"], pair.explain()
    assert pair.result["loop"]["kind"] in pair.truth["loop"]
    assert pair.result["loop"]["iterations"] >= 3
    assert pair.result["divergence"]["branch"]["module"] is not None


@positives
def test_flag_is_first(pair: Pair) -> None:
    truth, flag = pair.truth, pair.flag
    assert flag["kind"] == truth["kind"], pair.explain()
    if truth["kind"] == "syscall":
        return
    address, size = announced_flags(pair.spin.stderr)[0]
    assert int(flag["address"]["spin"], 16) == address, f"true address {address:#x}; {pair.explain()}"
    assert flag["size"] == size
    assert int(flag["value"]["spin"], 16) == truth["value_spin"]
    normal_address, _ = announced_flags(pair.normal.stderr)[0]
    assert flag["address"]["normal"] is not None, "the normal run's flag has no address"
    assert int(flag["address"]["normal"], 16) == normal_address


@positives
def test_flag_has_its_name(pair: Pair) -> None:
    truth, flag = pair.truth, pair.flag
    assert flag["name"]
    if truth["kind"] in ("global", "tls"):
        assert Path(flag["module"]).name == (truth["module"] or pair.program.name)
        assert flag["offset"] is not None
    if pair.stripped:
        return
    if truth["symbol"]:
        assert flag["symbol"] == truth["symbol"]
    if truth["field"]:
        assert truth["field"] in f"{flag['field']} {flag['access_path']}", pair.explain()
    if truth["allocated_or_defined_in"] and truth["kind"] in ("heap", "stack"):
        assert truth["allocated_or_defined_in"] in flag["name"], flag["name"]
    named = {other["symbol"] for other in pair.result["flags"]}
    assert set(truth["also"]) <= named, f"condition names {named}"


@positives
def test_exit_condition(pair: Pair) -> None:
    truth, flag = pair.truth, pair.flag
    assert flag["exit_when"]
    assert truth["value_exit"] is None or int(flag["value"]["exit"], 16) == truth["value_exit"]
    for value in truth["leaves"]:
        assert leaves(flag["exit_when"], value), f"{value:#x} ends the loop, exit_when says {flag['exit_when']!r}"
    for value in truth["stays"]:
        assert not leaves(flag["exit_when"], value), f"{value:#x} stays, exit_when says {flag['exit_when']!r}"


@positives
def test_readers_and_writers(pair: Pair) -> None:
    truth, flag = pair.truth, pair.flag
    assert flag["readers"]
    writers = [writer for writer in flag["writers"] if writer["run"] == "normal"]
    if truth["writer_functions"]:
        assert writers, "nobody is said to have written the flag in the normal run"
        counterpart = [writer for writer in writers if writer["tid"] != pair.result["threads"]["normal"]["tid"]]
        assert counterpart or truth["thread"] is None, "the only writers named are the spinning thread itself"
    if pair.stripped:
        return
    # Unoptimised, the load is in a library function that the reader calls.
    reading = [*flag["readers"], *flag["reader_stack"][:2]]
    assert code_symbols(reading) & set(truth["reader_functions"]), reading
    if truth["writer_functions"]:
        # An inlined function is known by its caller's name: the code or any frame above it will do.
        named = code_symbols([c for w in writers for c in (w["code"], *(w["stack"] or []))])
        assert named & set(truth["writer_functions"]), writers


@pytest.mark.parametrize("negative", cases(positive=False), indirect=True)
def test_negative_has_no_flag(negative: Pair) -> None:
    assert negative.result["verdict"] in negative.truth["verdict"], negative.explain()
    assert negative.result["reason"], "no-flag must say why"
    assert not negative.result["flags"]
