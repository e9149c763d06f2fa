# SPDX-License-Identifier: MIT
"""The lab: how often is flagfinder right on programs that nobody tuned it to?

    lab.py list             the cases by part, kind and language
    lab.py check            starts each case and checks its truth, without flagfinder
    lab.py run              asks flagfinder about each case; goes on where it was ended
    lab.py quick            a few looks at cases of `check`: none may be worse than kept
    lab.py foreign          asks gdb, py-spy, jstack and strace about the same cases
    lab.py run --without R  the same without the rule R
    lab.py ablate           asks without most rules: which ones does no answer need?
    lab.py keep             takes the newest look of each case over into results/
    lab.py page             renders docs/accuracy.md from results/

It starts programs that hang, that spin, or that do neither, finds out what is true without
flagfinder, asks, and judges the answers. `make lab PART=check` or `make lab CASES="pipe-full"` (a
family, or FAMILY/CASE) also installs what they need (Debian's packages as root). Each case is
looked at three times on an idle machine, and once beside a process that computes. Looks go to
build/lab/looks.jsonl, one JSON object a line; `make lab-keep` takes them over.

A family is one program or library with one mechanism; variants of it (compilers, levels, stripped)
are its cases. Its recipe says in which part it is:

    open      rules may be made for it, causes may be read
    check     whoever changes a rule runs it; causes are read only after the change is made
    sealed    run once for each release; nobody looks at the cause of a failure before the release
              is out, and the page shows no answer of it

New families go to `sealed`. With each release they move down one part. lab/example.toml says how to
write a case. It is refused where its thread does not do what `waiter` says, where the word changes
by itself, or where `released_by` does not end the loop.
"""

from __future__ import annotations

import argparse
import collections
import ctypes
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import page
from case import ALL_VERBS, HERE, KINDS, PARTS, ROOT, Case, RecipeError, all_cases
from judge import FAILED, NOTHING, RESULTS, RIGHT, WRONG
from look import FOREIGN, beside, foreign, looks, looks_file, on_one_start
from patient import (
    CaseError,
    build,
    clear_left,
    goes_well,
    install,
    is_released,
    missing,
    started,
)

from flagfinder import _core

KEPT = HERE / "results" / "looks.jsonl"
STARTS = HERE / "results" / "starts.json"
ABLATION = HERE / "results" / "ablation.json"
_QUIET = ("hang", "chain")  # kinds whose cases wait, so that several are looked at side by side
LOADS = ("idle", "busy")
_AT_ONCE = 3
_PR_SET_CHILD_SUBREAPER = 36
_QUICK = 150.0  # s


def main() -> int:
    """Does one of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what", choices=("list", "check", "run", "ablate", "quick", "foreign", "keep", "page")
    )
    parser.add_argument("cases", nargs="*", help="families, or FAMILY/CASE (default: all)")
    parser.add_argument("--part", choices=PARTS, help="only the cases of this part")
    parser.add_argument("--kind", choices=KINDS, help="only the cases of this kind")
    parser.add_argument("--verbs", nargs="+", choices=ALL_VERBS, help="only these verbs")
    parser.add_argument("--turns", type=int, default=3, help="looks at each case (default 3)")
    parser.add_argument("--loads", nargs="+", default=LOADS, choices=LOADS, help="of a look")
    parser.add_argument("--without", default="", metavar="RULE", help="switch a rule off")
    parser.add_argument("--again", action="store_true", help="forget the looks of before")
    options = parser.parse_intermixed_args()
    # What a patient starts becomes ours when its parent ends, and can be waited for.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        cases = all_cases(options.cases, options.part)
        cases = [case for case in cases if options.kind in (None, case.kind)]
        return {
            "list": _list,
            "check": _check,
            "run": _run,
            "ablate": _ablate,
            "quick": _quick,
            "foreign": _foreign,
            "keep": _keep,
            "page": lambda *_: page.render(KEPT, STARTS, ABLATION, all_cases()),
        }[options.what](cases, options)
    except RecipeError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 2


def _list(cases: Sequence[Case], _options: argparse.Namespace) -> int:
    for case in cases:
        print(f"{case.part:7}{case.kind:10}{case.language:11}{case.id:50}{case.about}")
    families = {case.family for case in cases}
    negatives = sum(case.is_negative for case in cases)
    print(f"\n{len(cases)} cases in {len(families)} families; {negatives} negatives")
    for name, one in (("part", "part"), ("kind", "kind"), ("language", "language")):
        counts = collections.Counter(getattr(case, one) for case in cases)
        print(f"by {name}: " + ", ".join(f"{key} {count}" for key, count in counts.most_common()))
    return 0


def _prepared(cases: Sequence[Case]) -> tuple[list[Case], dict[str, str]]:
    """The cases that could be built, and why others could not."""
    failed: dict[str, str] = {}
    by_family: dict[str, list[Case]] = {}
    for case in cases:
        by_family.setdefault(case.family, []).append(case)
    clear_left()
    ready: list[Case] = []
    for family, own in by_family.items():
        try:
            install(own)
        except (CaseError, subprocess.TimeoutExpired) as error:
            failed |= {case.id: str(error) for case in own}
            print(f"{family}: {error}", file=sys.stderr)
            continue
        for case in own:
            try:
                build(case)
                ready.append(case)
            except (CaseError, subprocess.TimeoutExpired) as error:
                failed[case.id] = str(error)
                print(f"{case.id}: {error}", file=sys.stderr)
    return ready, failed


def _check(cases: Sequence[Case], options: argparse.Namespace) -> int:
    """Each case, ``--turns`` times: it stands as its recipe says, its word ends the loop, its good
    run ends well.
    """
    ready, failed = _prepared(cases)
    rows: dict[str, list[str]] = {case.id: [] for case in ready}

    def one(case: Case) -> str:
        try:
            with started(case) as start:
                if not is_released(case, start):
                    return "the word that is said to end the loop does not"
            return goes_well(case) or ""
        except (CaseError, OSError, subprocess.SubprocessError) as error:
            return str(error)

    for turn in range(options.turns):
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for case, told in zip(ready, pool.map(one, ready), strict=True):
                rows[case.id].append(told)
                print(f"{turn + 1} {case.id}: {told or 'stands'}", flush=True)
    bad = {name: told for name, told in rows.items() if any(told)}
    total, wrong = (
        sum(map(len, rows.values())),
        sum(bool(one) for told in rows.values() for one in told),
    )
    print(f"\n{total} starts, {wrong} failed; {len(failed)} cases could not be built")
    for name, all_told in bad.items():
        print(f"  {name}: {'; '.join(filter(None, all_told))}")
    if not options.cases and options.part is None and options.kind is None:
        STARTS.parent.mkdir(exist_ok=True)
        kept = {
            "date": time.strftime("%Y-%m-%d"),
            "cases": len(cases),
            "families": len({case.family for case in cases}),
            "negatives": sum(case.is_negative for case in cases),
            "starts": total,
            "failed": wrong,
            "not_built": sorted(failed),
            "failures": {name: sorted({one for one in told if one}) for name, told in bad.items()},
        }
        STARTS.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 1 if bad or failed else 0


def _commit() -> str:
    told = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short=10", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    return told.stdout.strip()


def _read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("case", "verb", "load", "turn", "without"))


def _run(cases: Sequence[Case], options: argparse.Namespace) -> int:
    """``--turns`` looks by each verb while nothing else runs, and one beside a process that
    computes. What another run of this commit has seen is not looked at again.
    """
    commit = _commit()
    if options.without:
        known = [name for name, *_ in _core.RULES]
        if unknown := set(options.without.split(",")) - set(known):
            raise RecipeError(f"no rule {', '.join(unknown)}; there are {', '.join(known)}")
        os.environ["FF_WITHOUT"] = options.without
    file = looks_file()
    old = [] if options.again else [row for row in _read(file) if row["commit"] == commit]
    done = {_key(row) for row in old if row["result"] != FAILED}
    ready, failed = _prepared(cases)
    print(f"{len(ready)} cases, {len(failed)} could not be built", flush=True)
    work = [
        (case, load, turn, verbs)
        for turn in range(options.turns)
        for load in options.loads
        if load == "idle" or turn == 0
        for case in sorted(ready, key=lambda case: case.kind not in _QUIET)
        if (
            verbs := [
                verb
                for verb in case.verbs
                if (not options.verbs or verb in options.verbs)
                and (case.id, verb, load, turn, options.without) not in done
            ]
        )
    ]
    begin, counts = time.monotonic(), collections.Counter[str]()
    with file.open("w" if options.again else "a", encoding="utf-8") as out:

        def ask(one: tuple[Case, str, int, list[str]]) -> list[Any]:
            case, load, turn, verbs = one
            return list(looks(case, verbs, load, turn, commit, options.without))

        for number, rows in enumerate(_in_order(work, ask), 1):
            for row in rows:
                out.write(row.row() + "\n")
                counts[row.result] += 1
                what = f"{row.result:9}{row.verb:9}{row.load:5}{row.case}"
                print(f"{what}: {row.said}", flush=True)
            out.flush()
            left = (time.monotonic() - begin) / number * (len(work) - number)
            print(f"   {number} of {len(work)}, {left / 60:.0f} min left", flush=True)
    print(", ".join(f"{name} {counts[name]}" for name in RESULTS))
    return 0


def _ablate(cases: Sequence[Case], options: argparse.Namespace) -> int:
    """Asks without all rules that no answer so far has needed. Where that answer is worse, those
    are found by halves with which it is as good again, and are needed from then on. What is left at
    the end no answer needs, all taken together. Goes on where it was ended. Blind spot: a rule may
    have been found needed only because the others were off.
    """
    kept = json.loads(ABLATION.read_text(encoding="utf-8")) if ABLATION.exists() else {}
    needed: dict[str, str] = kept.get("needed", {})
    better: list[str] = kept.get("better", [])
    asked: list[str] = kept.get("asked", [])
    work = [
        (case, verb)
        for case in cases
        for verb in options.verbs or ("core", "diff", "spin")
        if verb in case.verbs and f"{case.id} {verb}" not in asked
    ]
    ready, _ = _prepared(list(dict.fromkeys(case for case, _ in work)))
    work = [(case, verb) for case, verb in work if case in ready]
    for count, (case, verb) in enumerate(work, 1):
        off = [name for name, *_ in _core.RULES if name not in needed]
        try:
            with on_one_start(case, verb) as look:
                best, without, found = _needed(look, off)
        except (CaseError, OSError, subprocess.TimeoutExpired) as error:
            print(f"{case.id} {verb}: {error}", flush=True)
            continue
        question = f"{case.id} {verb}"
        asked.append(question)
        needed |= dict.fromkeys(found, question)
        if FAILED not in (best, without) and RESULTS.index(without) < RESULTS.index(best):
            better.append(question)
        needs = f", needs {', '.join(found)}" if found else ""
        print(f"{question}: {best}, without {without}{needs}, {count} of {len(work)}", flush=True)
        kept = {
            "date": time.strftime("%Y-%m-%d"),
            "asked": asked,
            "needed": needed,
            "better": better,
        }
        ABLATION.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return 0


def _needed(look: Callable[[], str], rules: Sequence[str]) -> tuple[str, str, list[str]]:
    """The answer with all rules, the one without these, and those that it takes."""

    def asked(without: Iterable[str]) -> str:
        os.environ["FF_WITHOUT"] = ",".join(without)
        return look()

    def is_worse(result: str) -> bool:
        return result != FAILED and RESULTS.index(result) > RESULTS.index(best)

    best = asked(())
    if best == FAILED:
        return best, FAILED, []
    first = result = asked(rules)
    on: list[str] = []
    # Each time one more rule, without which the rest does not do.
    while is_worse(result) and not is_worse(asked(())):
        low, high = 0, len(rules)
        while high - low > 1:
            middle = (low + high) // 2
            is_without = is_worse(asked(set(rules[middle:]) - set(on)))
            low, high = (middle, high) if is_without else (low, middle)
        if rules[low] in on:
            break
        on.append(rules[low])
        result = asked(set(rules) - set(on))
    return best, first, on


def _in_order(work: Sequence[Any], ask: Any) -> Iterable[list[Any]]:
    """Cases that wait are looked at side by side, but not beside one that computes."""
    groups = itertools.groupby(work, lambda one: (one[1], one[2], one[0].kind in _QUIET))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for (load, _, is_quiet), group in groups:
            with beside(load):
                yield from pool.map(ask, group) if is_quiet else map(ask, group)


def _best(rows: Iterable[dict[str, Any]]) -> dict[tuple[str, str], collections.Counter[str]]:
    found: dict[tuple[str, str], collections.Counter[str]] = {}
    for row in rows:
        if not row["without"]:
            found.setdefault((row["case"], row["verb"]), collections.Counter())[row["result"]] += 1
    return found


def _quick(cases: Sequence[Case], _options: argparse.Namespace) -> int:
    """For `make test`: the cases of `check` that need nothing to be installed and were right at
    every kept look are looked at once, as many as there is time for. One that is not right is
    looked at twice more: it is worse if it is right at none, or wrong where nothing was.
    """
    kept = _best(row for row in _read(KEPT) if row["part"] == "check")
    begin, worse, asked, left = time.monotonic(), [], 0, 0
    for case in cases:
        if case.part != "check" or case.needs.pip or case.needs.npm:
            continue
        for verb in case.verbs:
            before = kept.get((case.id, verb))
            if before is None or set(before) != {RIGHT} or verb not in ("spin", "why"):
                continue
            if time.monotonic() - begin > _QUICK:
                left += 1
                continue
            try:
                _need_nothing(case)
                build(case)
            except CaseError:
                continue
            for turn in range(3):
                row = next(iter(looks(case, [verb], "idle", turn, "", "")))
                if row.result == RIGHT:
                    break
            asked += 1
            if row.result != RIGHT:
                worse.append(f"{case.id}, {verb}: {row.result}: {row.said}")
    for one in worse:
        print(f"worse than kept: {one}")
    seconds = time.monotonic() - begin
    print(f"lab: {asked - len(worse)} of {asked} as kept, {left} not asked, {seconds:.0f} s")
    return 1 if worse else 0


def _need_nothing(case: Case) -> None:
    """Raises CaseError where a package is missing."""
    if lacking := missing(case):
        raise CaseError(f"it needs {', '.join(lacking)}")


def _foreign(cases: Sequence[Case], _options: argparse.Namespace) -> int:
    ready, _ = _prepared([case for case in cases if case.expect.telltale])
    commit = _commit()
    with looks_file().open("a", encoding="utf-8") as out:
        for case in ready:
            for tool in FOREIGN:
                row = foreign(case, tool, 0, commit)
                if row is not None:
                    out.write(row.row() + "\n")
                    print(f"{row.result:9}{tool:8}{case.id}: {row.said}", flush=True)
    return 0


def _keep(_cases: Sequence[Case], _options: argparse.Namespace) -> int:
    """The newest looks at each case by each verb replace those that are kept."""
    known = {case.id for case in all_cases()}
    old = [row for row in _read(KEPT) if row["case"] in known]
    new = [row for row in _read(looks_file()) if row["case"] in known]
    newest = {(row["case"], row["verb"], row["without"]): row["commit"] for row in (*old, *new)}
    rows = {
        _key(row): row
        for row in (*old, *new)
        if newest[row["case"], row["verb"], row["without"]] == row["commit"]
    }
    KEPT.parent.mkdir(exist_ok=True)
    lines = [json.dumps(rows[key], ensure_ascii=False) for key in sorted(rows)]
    KEPT.write_text("\n".join(lines) + "\n", encoding="utf-8")
    worst = sum(row["result"] in (WRONG, NOTHING, FAILED) for row in rows.values())
    print(f"{len(rows)} looks kept, {worst} of them wrong, empty or failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
