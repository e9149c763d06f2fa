# SPDX-License-Identifier: MIT
"""The lab's recipes are readable, what is wrong in one is refused, and answers are judged as a
person would.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from harness import ROOT

sys.path.insert(0, str(ROOT / "lab"))

import case as cases
import judge
from case import Case, RecipeError, all_cases
from judge import CONTAINS, HALF, NOTHING, RIGHT, WRONG
from patient import Truth

RECIPE = """
part = "open"
about = "A thread polls a flag."
language = "C"
kind = "word"
source = "own"
bad = "./flag {how}"
"""
TRUTH = """target 40
role waiter 40 41
role worker 40 42
role clock 40 43
role peer 50
role bystander 60 61
word done 0x1000 4
word stop 0x2000 4
places state 40 4 0x3000 0x4000
fd listener 7
ready
"""


@pytest.fixture
def families(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of families of its own."""
    monkeypatch.setattr(cases, "FAMILIES", tmp_path)
    monkeypatch.setattr(cases, "ROOT", tmp_path)
    yield tmp_path


def recipe(families: Path, text: str) -> list[Case]:
    (families / "one").mkdir(exist_ok=True)
    (families / "one" / "family.toml").write_text(text)
    return all_cases()


def of(families: Path, more: str, kind: str = "word") -> Case:
    """The only case of a recipe with these lines more."""
    (only,) = recipe(families, RECIPE.replace('"word"', f'"{kind}"') + more)
    return only


def true() -> Truth:
    truth = Truth()
    truth.read(TRUTH)
    return truth


def test_all_recipes_are_readable() -> None:
    found = all_cases()
    assert len(found) == len({case.id for case in found}) > 200
    assert all(case.about and case.source and case.verbs for case in found)


def test_the_example_is_a_recipe_with_every_key(families: Path) -> None:
    (case,) = recipe(families, (ROOT / "lab" / "example.toml").read_text(encoding="utf-8"))
    for part in (case, case.needs, case.check, case.expect, case.expect.why):
        for key in fields(part):
            empty = key.name == "npm"  # an empty list there
            assert getattr(part, key.name) or empty, key.name


def test_a_case_changes_keys_of_its_family_and_fills_its_braces(families: Path) -> None:
    expect = '[expect]\nwords = "done"\n'
    first, second = recipe(
        families,
        RECIPE + expect + '[case.a]\nvars = { how = "slow" }\n[case.b]\nkind = "negative"\n',
    )
    assert (first.id, first.bad, first.kind) == ("one/a", ("./flag", "slow"), "word")
    # What it does not know is the shell's or the language's.
    assert (second.id, second.bad, second.kind) == ("one/b", ("./flag", "{how}"), "negative")
    assert (first.check.waiter, second.check.waiter) == ("repeats", "any")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('about = "A thread polls a flag."\n', "", "about"),
        ('part = "open"', 'part = "shut"', "shut"),
        ('kind = "word"', 'kind = "words"', "words"),
        ('source = "own"', 'source = "own"\nsecond = 3', "second"),
        ('source = "own"', 'source = "own"\nverbs = ["spun"]', "spun"),
        ('source = "own"', 'source = "own"\nstdin = "closed"', "closed"),
        ('source = "own"', 'source = "own"\nverbs = ["find"]', "good run"),
        ('source = "own"', 'source = "own"\nverbs = ["diagnose"]', "culprit"),
        ('source = "own"', 'source = "own"\nneeds = { app = "x" }', "app"),
        ('source = "own"', 'source = "own"\nexpect = { word = "x" }', "word"),
        ('source = "own"', 'source = "own"\ncheck = { waiter = "waits" }', "waits"),
        ('source = "own"', 'source = "own"\nexpect = { why = { rot = "x" } }', "rot"),
        ('source = "own"', 'source = "own"', "nothing is expected of `why`"),
        ('bad = "./flag {how}"', "", "bad"),
        ('source = "own"', "source = own", "family.toml"),
    ],
)
def test_what_is_wrong_in_a_recipe_is_refused(
    families: Path, old: str, new: str, told: str
) -> None:
    with pytest.raises(RecipeError, match=told) as error:
        recipe(families, RECIPE.replace(old, new))
    assert "one/family.toml" in str(error.value)


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(RecipeError, match="no such family"):
        all_cases(["there-is-none"])


def test_an_unfinished_line_of_a_truth_is_left() -> None:
    truth = Truth()
    truth.read(TRUTH + "word late 0x50")
    assert (truth.waiter, truth.is_ready) == (41, True)
    assert truth.words["state"].copies == (0x4000,)
    assert "late" not in truth.words


def flag(address: str | None, name: str = "it", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "kind": "global",
        "size": 4,
        "standing": "by-code",
        "address": {"spin": address},
        **more,
    }


def thread(*flags: dict[str, Any], tid: int = 41, **more: Any) -> dict[str, Any]:
    return {"tid": tid, "flags": list(flags), "reason": "" if flags else "none found", **more}


def call(name: str, *ready: int) -> dict[str, Any]:
    listed = [{"fd": fd, "because": "ready"} for fd in ready]
    return flag(None, f"{name} on fd {ready[0]} returns 1", kind="syscall", descriptors=listed)


@pytest.mark.parametrize(
    ("flags", "result"),
    [
        ([flag("0x1000")], RIGHT),
        ([flag("0x1002")], RIGHT),  # a byte of it
        ([flag("0xffc")], WRONG),  # the word before it
        ([flag("0x9000"), flag("0x1000")], CONTAINS),
        ([flag("0x2000")], HALF),  # another word of the condition
        ([flag("0x9000")], WRONG),
        ([flag("0x9000", standing="unsure")], NOTHING),
        ([flag("0x1000", standing="unsure")], RIGHT),
        ([], NOTHING),
    ],
)
def test_a_word_is_judged(families: Path, flags: list[dict[str, Any]], result: str) -> None:
    case = of(families, '[expect]\nwords = "done"\nalso = "stop"\n')
    assert judge.of_words(case, true(), {"threads": [thread(*flags)]}).result == result
    # `diff` and `core` of one thread have no list of threads.
    assert judge.of_words(case, true(), {"flags": flags, "reason": ""}).result == result


def test_the_thread_that_waits_is_judged_first(families: Path) -> None:
    case = of(families, '[expect]\nwords = "done"\n')
    other = thread(flag("0x9000"), tid=43)
    both = {"threads": [other, thread(flag("0x1000"))]}
    assert judge.of_words(case, true(), both).result == RIGHT


def test_each_copy_of_a_word_is_right(families: Path) -> None:
    case = of(families, '[expect]\nwords = "state"\n')
    for place in ("0x3000", "0x4000"):
        answer = {"threads": [thread(flag(place))]}
        assert judge.of_words(case, true(), answer).result == RIGHT


@pytest.mark.parametrize(
    ("flags", "result"),
    [
        ([call("poll", 7)], RIGHT),
        ([call("poll", 8)], HALF),  # the call, for another descriptor
        ([call("read", 7)], WRONG),
        ([flag("0x9000"), call("poll", 7)], CONTAINS),
        ([], NOTHING),
    ],
)
def test_a_call_is_judged(families: Path, flags: list[dict[str, Any]], result: str) -> None:
    case = of(families, '[expect]\ncall = "poll"\nfd = "listener"\n', "call")
    assert judge.of_words(case, true(), {"threads": [thread(*flags)]}).result == result


def test_the_words_of_a_python_loop_are_judged(families: Path) -> None:
    case = of(families, '[expect]\npython = "self.done"\n')
    loop = {"loop": {"exits": [{"when": "self.done"}]}}
    assert judge.of_words(case, true(), {"threads": [thread(python=loop)]}).result == RIGHT
    loop = {"loop": {"exits": [{"when": "other"}]}}
    assert judge.of_words(case, true(), {"threads": [thread(python=loop)]}).result == NOTHING


@pytest.mark.parametrize("kind", ["negative", "endless", "collector"])
def test_no_word_may_be_named_where_there_is_none(families: Path, kind: str) -> None:
    case = of(families, "", kind)
    for flags, result in (
        ([], RIGHT),
        ([flag("0x9000", standing="unsure")], RIGHT),
        ([flag("0x9000")], WRONG),
    ):
        assert judge.of_words(case, true(), {"threads": [thread(*flags)]}).result == result


def chain(
    kind: str, pid: int | None = 40, tid: int | None = 42, *, story: str = "", address: str = ""
) -> dict[str, Any]:
    waits = {"name": "it", "kind": "flag", "address": address or None}
    return {
        "root": {"kind": kind, "pid": pid, "tid": tid, "name": "worker", "what": "it reads fd 3"},
        "story": [story] if story else [],
        "links": [{"known": "seen", "waits_for": waits}],
    }


@pytest.mark.parametrize(
    ("answer", "status", "result"),
    [
        (chain("input"), 0, RIGHT),
        (chain("input", tid=None), 0, RIGHT),  # of the process as a whole
        (chain("input", tid=44), 0, WRONG),
        (chain("input", tid=43), 0, WRONG),  # an innocent
        (chain("timer"), 0, WRONG),
        (chain("deadlock"), 0, WRONG),
        (chain("unknown"), 1, NOTHING),
    ],
)
def test_a_root_is_judged(families: Path, answer: dict[str, Any], status: int, result: str) -> None:
    expect = '[expect]\ninnocents = "clock"\n[expect.why]\nroot = "input"\nat = "worker"\n'
    case = of(families, expect, "hang")
    assert judge.of_chain(case, true(), answer, status).result == result


def test_a_root_without_what_it_should_tell_is_half(families: Path) -> None:
    case = of(families, '[expect.why]\nroot = "input"\nsays = "fd 3|pipe"\n', "hang")
    assert judge.of_chain(case, true(), chain("input"), 0).result == RIGHT
    case = of(families, '[expect.why]\nroot = "input"\nsays = "socket"\n', "hang")
    assert judge.of_chain(case, true(), chain("input"), 0).result == HALF


def test_what_may_never_be_said_is_wrong_also_of_an_unknown_root(families: Path) -> None:
    expect = '[expect.why]\nroot = ["unknown", "deadlock"]\nnever = "deadlock"\n'
    case = of(families, expect, "hang")
    assert judge.of_chain(case, true(), chain("deadlock"), 0).result == WRONG
    assert judge.of_chain(case, true(), chain("unknown"), 1).result == RIGHT


def test_a_story_that_tells_what_is_untrue_is_wrong(families: Path) -> None:
    case = of(families, '[expect.why]\nroot = "deadlock"\nuntrue = "for process 50"\n', "chain")
    told = chain("deadlock", story="process 40 waits for process 50, which waits for process 40")
    assert judge.of_chain(case, true(), told, 0).result == WRONG
    assert judge.of_chain(case, true(), chain("deadlock"), 0).result == RIGHT


def test_a_chain_must_come_by_the_word(families: Path) -> None:
    case = of(families, '[expect]\nwords = "done"\n')
    assert judge.of_chain(case, true(), chain("input", address="0x1000"), 0).result == RIGHT
    assert judge.of_chain(case, true(), chain("input", address="0x9000"), 0).result == WRONG
    assert judge.of_chain(case, true(), chain("unknown"), 1).result == NOTHING
    known = chain("unknown", address="0x1000")
    assert judge.of_chain(case, true(), known, 1).result == HALF  # nobody is named


def test_a_chain_must_tell_of_the_call(families: Path) -> None:
    case = of(families, '[expect]\ncall = "poll"\n', "call")
    story = "it calls poll on fd 7 again and again"
    assert judge.of_chain(case, true(), chain("input", story=story), 0).result == RIGHT
    # Nobody is named.
    assert judge.of_chain(case, true(), chain("unknown", story=story), 1).result == HALF
    assert judge.of_chain(case, true(), chain("computes", story="it computes"), 0).result == WRONG


@pytest.mark.parametrize("kind", ["deadlock", "ended", "stopped", "frozen"])
def test_nobody_says_of_a_healthy_process_that_it_hangs(families: Path, kind: str) -> None:
    case = of(families, "", "negative")
    assert judge.of_chain(case, true(), chain(kind), 0).result == WRONG
    assert judge.of_chain(case, true(), chain("input"), 0).result == RIGHT


@pytest.mark.parametrize(
    ("named", "result"),
    [
        ([(40, 42)], RIGHT),
        ([(50, 51)], RIGHT),  # any thread of that process
        ([(40, 43), (40, 42)], CONTAINS),
        ([(40, 43)], WRONG),
        ([(40, 42), (60, 61)], WRONG),  # an innocent beside the culprit
        ([], NOTHING),
    ],
)
def test_a_diagnosis_is_judged(families: Path, named: list[tuple[int, int]], result: str) -> None:
    expect = 'culprit = ["worker", "peer"]\ninnocents = ["bystander"]'
    case = of(families, f'verbs = ["diagnose"]\n[expect]\n{expect}\n', "hang")
    culprits = [{"class": "LongWait", "thread": "it", "pid": pid, "tid": tid} for pid, tid in named]
    assert judge.of_diagnosis(case, true(), {"culprits": culprits}).result == result
