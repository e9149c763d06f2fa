# SPDX-License-Identifier: MIT
"""Is what flagfinder said of a case right?

In: its JSON answer, the case and the truth of that start. Out: a result, and what was said in one
line. What is judged is what a person would take for the answer: the first word, the root.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from case import Case
from patient import Truth, Word

RIGHT = "right"  # the first thing said is the truth
CONTAINS = "contains"  # the truth is in the answer, but not first
HALF = "half"  # the class is right, what it should tell is not there
NOTHING = "nothing"  # nothing is claimed
WRONG = "wrong"  # something else is claimed
FAILED = "failed"  # no answer came
RESULTS = (RIGHT, CONTAINS, HALF, NOTHING, WRONG, FAILED)

# Of a process that nothing is wrong with nobody may say these.
_NEVER_OF_HEALTHY = ("deadlock", "ended", "stopped", "frozen", "lost-wakeup", "left-locked")
# Of a word that is no answer.
_NO_CLAIM = ("assumed", "unsure", "ruled-out")


@dataclass(frozen=True)
class Judgement:
    """``mark``: how the answer says it knows (proved, seen, by-code, assumed, ..)."""

    result: str
    said: str
    mark: str = ""


def of_words(case: Case, truth: Truth, answer: dict[str, Any], run: str = "spin") -> Judgement:
    """Of `spin`, `core`, `diff` or `find`: the words of the thread that waits. `spin` of a
    process with other busy threads may name words of theirs, too: those count as said later.
    """
    threads = answer.get("threads")
    if isinstance(threads, list):
        threads = sorted(threads, key=lambda one: one["tid"] != truth.waiter)
        flags = [flag for one in threads for flag in one["flags"]]
        loops = [one.get("python", {}) or {} for one in threads]
        scripts = [one["script"] for one in threads if one.get("script")]
    else:
        flags, loops, scripts = answer.get("flags", []), [answer.get("python") or {}], []
    said = "; ".join(_told(flag) for flag in flags[:3])
    code = [
        exit_["when"]
        for python in loops
        for exit_ in ((python.get("loop") or {}).get("exits") or ())
    ] + [ask for script in scripts for ask in map(str, script.get("asks", ()))]
    said = said or "; ".join(code[:3])
    if case.expect.python and any(re.search(case.expect.python, text) for text in code):
        return Judgement(RIGHT, "; ".join(code[:3]), "source")
    claimed = [flag for flag in flags if flag["standing"] not in _NO_CLAIM]
    if case.expect.nothing or case.is_negative:
        if not claimed:
            return Judgement(RIGHT, said or "no word")
        return Judgement(WRONG, said, _mark(claimed[0]))
    matches = [_matches(case, truth, flag, run) for flag in flags]
    if not flags:
        return Judgement(NOTHING, _reason(answer))
    if matches[0]:
        return Judgement(RIGHT, said, _mark(flags[0]))
    if any(matches):
        return Judgement(CONTAINS, said, _mark(flags[0]))
    if not claimed:
        return Judgement(NOTHING, said)
    if case.expect.call and any(_calls(case, flag) for flag in flags):
        return Judgement(HALF, said, _mark(flags[0]))
    if all(_among(truth, case.expect.also, flag, run) for flag in claimed):
        return Judgement(HALF, said, _mark(flags[0]))
    return Judgement(WRONG, said, _mark(claimed[0]))


def _matches(case: Case, truth: Truth, flag: dict[str, Any], run: str) -> bool:
    if case.expect.call and _calls(case, flag):
        return not case.expect.fd or _descriptor(case, truth) in _descriptors(flag)
    if case.expect.name and re.search(case.expect.name, flag["name"]):
        return True
    return _among(truth, case.expect.words, flag, run)


def _calls(case: Case, flag: dict[str, Any]) -> bool:
    """Its name begins with the call's: `poll on fd 0 returns 1`."""
    called = re.match(r"\w+", flag["name"])
    return flag["kind"] == "syscall" and called is not None and called[0] in case.expect.call


def _descriptor(case: Case, truth: Truth) -> int:
    return truth.descriptors.get(case.expect.fd, -1)


def _descriptors(flag: dict[str, Any]) -> set[int]:
    """Those that the call is said to come back for; its arguments where it has no list."""
    listed = {one["fd"] for one in flag.get("descriptors", ()) if one.get("because") != "not-ready"}
    call = flag.get("call") or {}
    found = {one["fd"] for one in call.get("found", ()) if one["fd"] is not None}
    return listed | found | set(call.get("args", ())[:1])


def _among(truth: Truth, names: Iterable[str], flag: dict[str, Any], run: str) -> bool:
    address = (flag.get("address") or {}).get(run)
    if address is None:
        return False
    start = int(address, 16)
    return any(_overlaps(truth.words[name], start, flag["size"]) for name in names)


def _overlaps(word: Word, start: int, size: int) -> bool:
    return any(
        start < address + word.size and address < start + max(size, 1)
        for address in (word.address, *word.copies)
    )


def _told(flag: dict[str, Any]) -> str:
    return f"{flag['name']} ({flag['standing']})"


def _mark(flag: dict[str, Any]) -> str:
    """How it is known."""
    return str(flag["standing"])


def _reason(answer: dict[str, Any]) -> str:
    threads = answer.get("threads")
    if isinstance(threads, list):
        reasons = [one["reason"] for one in threads if one["reason"]]
        return reasons[0] if reasons else "nothing"
    return str(answer.get("reason", "nothing"))


def of_chain(case: Case, truth: Truth, answer: dict[str, Any], status: int) -> Judgement:
    """Of `why`, of a process or a core, and of `guard`: the root and the story."""
    root, story = answer["root"], answer["story"]
    expect = case.expect.why
    said = f"[{root['kind']}] {story[0] if story else root['what']}"
    marks = [link["known"] for link in answer["links"]]
    known = ("seen", "proved", "by-code", "by-reference", "assumed")
    mark = max(marks, key=known.index) if marks else ""
    text = "\n".join((*story, root["what"]))
    claims = status == 0 and root["kind"] != "unknown"
    never = expect.never or (_NEVER_OF_HEALTHY if case.is_negative else ())
    if root["kind"] in never or any(re.search(one, text, re.I) for one in expect.untrue):
        return Judgement(WRONG, said, mark)
    named = {(root["pid"], root["tid"])}
    if claims and any(_is(truth, role, named, True) for role in case.expect.innocents):
        return Judgement(WRONG, said, mark)
    if case.is_negative:
        return Judgement(RIGHT, said, mark)
    at = not expect.at or _is(truth, expect.at, named)
    says = all(re.search(pattern, text, re.I) for pattern in expect.says)
    # Where the root of a loop around a call is known, the call need not be told as well.
    is_enough = bool(case.expect.call and expect.root)
    words = is_enough or _tells_of_wait(case, truth, answer, text)
    if root["kind"] in expect.root and at:
        return Judgement(RIGHT if says and words else HALF, said, mark)
    if not expect.root and words and says:
        return Judgement(RIGHT if claims else HALF, said, mark)
    if not claims:
        return Judgement(NOTHING, said, mark)
    return Judgement(WRONG, said, mark)


def _tells_of_wait(case: Case, truth: Truth, answer: dict[str, Any], text: str) -> bool:
    """Whether a link waits for what the case waits for, where that is no matter of the root."""
    expect = case.expect
    told = "\n".join((text, *(link["waits_for"]["name"] for link in answer["links"])))
    patterns = [rf"\b{name}\b" for name in expect.call]
    patterns += filter(None, (expect.name, expect.python))
    if not patterns and not expect.words:
        return True
    return _links_word(case, truth, answer) or any(re.search(one, told) for one in patterns)


def _links_word(case: Case, truth: Truth, answer: dict[str, Any]) -> bool:
    """Whether a link waits for one of the words."""
    addresses = [link["waits_for"]["address"] for link in answer["links"]]
    flags = [{"address": {"spin": one}, "size": 1} for one in addresses if one]
    return any(_among(truth, case.expect.words, flag, "spin") for flag in flags)


def _is(
    truth: Truth, role: str, named: set[tuple[int | None, int | None]], is_strict: bool = False
) -> bool:
    """Whether it is named. A role without a process is a thread that is gone, one without a thread
    any of its process. A process as a whole is each of its threads, unless it is ``is_strict``.
    """
    pid, tid = truth.roles[role]
    whole = () if is_strict else (None,)
    return any(
        pid in (one, 0) and (not tid or thread == tid or (thread in whole and pid != 0))
        for one, thread in named
    )


def of_diagnosis(case: Case, truth: Truth, answer: dict[str, Any]) -> Judgement:
    """Of `diagnose`: its culprits, none of whom may be innocent."""
    culprits = answer.get("culprits", [])
    said = "; ".join(f"{one['class']} {one['thread']}" for one in culprits[:3]) or "nobody"
    wanted = case.expect.culprit
    if not culprits:
        return Judgement(NOTHING if wanted else RIGHT, said)

    def is_one_of(roles: Sequence[str], one: dict[str, Any]) -> bool:
        return any(_is(truth, role, {(one["pid"], one["tid"])}) for role in roles)

    if any(is_one_of(case.expect.innocents, one) for one in culprits):
        return Judgement(WRONG, said)
    matches = [is_one_of(wanted, one) for one in culprits]
    if matches[0]:
        return Judgement(RIGHT, said)
    return Judgement(CONTAINS if any(matches) else WRONG, said)
