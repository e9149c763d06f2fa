# SPDX-License-Identifier: MIT
"""Each sample recorded in both modes and diffed; the flag must be rank 1, as the truth file and the
program itself say.

Each recording has other addresses (ASLR is on). The bar is 5 of 5, which `make soak` asks for.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from harness import (
    LastMade,
    Recording,
    announced_flags,
    assert_consistent,
    code_symbols,
    diff,
    leaves,
    record,
)
from sizes import SLOW, is_positive, sample_cases, truth_of


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
        named = [
            (f["rank"], f["name"], f["kind"], f["address"]["spin"], f["exit_when"])
            for f in self.result["flags"]
        ]
        return f"{self.result['verdict']}: {self.result['reason']}; {named}"


def record_both(
    case: tuple[str, bool], samples: Path, where: Path, spin_options: list[str], seconds: float
) -> Pair:
    """Records both modes of a sample and compares them."""
    name, stripped = case
    program = samples / ("stripped" if stripped else ".") / name
    normal = record(where / "normal.trace", [program, "normal"])
    assert normal.exit_code == 0, normal.stderr
    spin = record(where / "spin.trace", [program, "spin"], *spin_options, kill_after=seconds)
    for recording in (normal, spin):
        assert_consistent(recording.trace)
    result = diff(normal.trace, spin.trace)
    for recording in (normal, spin):
        recording.trace.unlink()
    return Pair(program, stripped, normal, spin, result, truth_of(name))


@pytest.fixture(scope="module")
def sample(request: pytest.FixtureRequest) -> tuple[str, bool]:
    """(program, stripped). All tests of one sample run one after another."""
    case: tuple[str, bool] = request.param
    return case


@pytest.fixture(scope="module")
def recorded() -> LastMade[Pair]:
    """The recordings of the sample whose tests run now."""
    return LastMade()


@pytest.fixture
def pair(
    request: pytest.FixtureRequest,
    sample: tuple[str, bool],
    recorded: LastMade[Pair],
    samples: Path,
    tracer: None,  # noqa: ARG001
    tmp_path: Path,
) -> Pair:
    """The sample's recordings: the same for all tests of it, others for a second try."""
    options = ["--stop-when-spinning", "0.5", "--then", "kill"] if is_positive(sample[0]) else []
    seconds = 15 if is_positive(sample[0]) else 1
    return recorded.get(request, lambda: record_both(sample, samples, tmp_path, options, seconds))


positives = pytest.mark.parametrize(
    "sample", sample_cases(positive=True, turn=0, of=3, long=SLOW), indirect=True
)


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
    assert int(flag["address"]["spin"], 16) == address, (
        f"true address {address:#x}; {pair.explain()}"
    )
    assert flag["size"] == size
    assert truth["value_spin"] in (None, int(flag["value"]["spin"], 16))
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
        assert leaves(flag["exit_when"], value), (
            f"{value:#x} ends the loop, exit_when says {flag['exit_when']!r}"
        )
    for value in truth["stays"]:
        assert not leaves(flag["exit_when"], value), (
            f"{value:#x} stays, exit_when says {flag['exit_when']!r}"
        )


@positives
def test_readers_and_writers(pair: Pair) -> None:
    truth, flag = pair.truth, pair.flag
    assert flag["readers"]
    writers = [writer for writer in flag["writers"] if writer["run"] == "normal"]
    if truth["writer_functions"]:
        assert writers, "nobody is said to have written the flag in the normal run"
        counterpart = [
            writer for writer in writers if writer["tid"] != pair.result["threads"]["normal"]["tid"]
        ]
        assert counterpart or truth["thread"] is None, (
            "the only writers named are the spinning thread itself"
        )
    if pair.stripped:
        return
    # Unoptimised, the load is in a library function that the reader calls.
    reading = [*flag["readers"], *flag["reader_stack"][:2]]
    assert code_symbols(reading) & set(truth["reader_functions"]), reading
    if truth["writer_functions"]:
        # An inlined function is known by its caller's name: the code or any frame above it will do.
        named = code_symbols([c for w in writers for c in (w["code"], *(w["stack"] or []))])
        assert named & set(truth["writer_functions"]), writers


@positives
def test_who_owes_it(pair: Pair) -> None:
    result, flag = pair.result, pair.flag
    if pair.truth["kind"] == "syscall":
        assert flag["owed"] == []
        assert "system call" in flag["owed_by_nobody"]
        return
    written = {writer["tid"] for writer in flag["writers"] if writer["run"] == "normal"}
    for owed in flag["owed"]:
        assert owed["known"] == "seen"
        assert owed["tid"] != result["threads"]["spin"]["tid"]
        assert owed["normal"]["tid"] in written - {result["threads"]["normal"]["tid"]}
    nobody = flag.get("owed_by_nobody", "")
    assert bool(flag["owed"]) != bool(nobody)
    if pair.truth["thread"] is not None and pair.truth["writer_functions"]:
        assert flag["owed"] or "has ended" in nobody or "no such thread" in nobody, nobody


@pytest.mark.parametrize(
    "sample", sample_cases(positive=False, turn=0, of=3, long=SLOW), indirect=True
)
def test_negative_has_no_flag(pair: Pair) -> None:
    assert pair.result["verdict"] in pair.truth["verdict"], pair.explain()
    assert pair.result["reason"], "no-flag must say why"
    assert not pair.result["flags"]
