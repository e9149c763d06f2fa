# SPDX-License-Identifier: MIT
"""What a case of the lab is, read from the recipes in families/*/family.toml.

In: folders. Out: cases, in the order of their names. example.toml describes the format; whatever it
does not have is refused, so that a misspelt key can't make a case easier.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
FAMILIES = HERE / "families"
INCLUDED = HERE / "include"  # what the programs of the lab import
WORK = ROOT / "build" / "lab"
PARTS = ("open", "check", "sealed")

KINDS = {
    "word": "polls a word",
    "call": "loops around a call",
    "endless": "loops without a wait",
    "collector": "collects garbage without end",
    "hang": "one process hangs",
    "chain": "a chain over processes",
    "negative": "nothing is wrong",
}
# What is asked about a case of each kind, unless it says otherwise.
VERBS = {
    "word": ("spin", "core", "why"),
    "call": ("spin", "core", "why"),
    "endless": ("spin", "core", "why"),
    "collector": ("spin", "core", "why"),
    "hang": ("why", "why-core", "guard"),
    "chain": ("why", "guard"),
    "negative": ("spin", "core", "why"),
}
ALL_VERBS = ("spin", "core", "diff", "find", "why", "why-core", "guard", "diagnose")
STDIN = ("null", "hold", "end", "tty")
WAITERS = ("repeats", "spins", "stays", "any")
# How the thread that waits behaves, unless a case says otherwise: the start is refused if not.
WAITER = {
    "word": "repeats",
    "call": "repeats",
    "endless": "spins",
    "collector": "any",
    "hang": "stays",
    "chain": "stays",
    "negative": "any",
}


class RecipeError(Exception):
    """A recipe that can't be used, and why."""


@dataclass(frozen=True)
class Needs:
    """What a case needs beside Python and a C compiler: package names, with `=version` where one
    matters. ``programs`` are those of which any version in PATH will do.
    """

    apt: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()
    npm: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Check:
    """How the truth is known without flagfinder. ``waiter``: what the thread that waits does.
    ``released_by``: a word and the value that ends the loop once it is written. ``script``: a
    command that must succeed while the case stands.
    """

    waiter: str = ""
    released_by: tuple[str, int] | None = None
    script: str | None = None


@dataclass(frozen=True)
class Why:
    """What `why` must say. ``root``: the kinds that are right. ``at``: the role to blame, or "".
    ``says``: patterns of which each must be in the story. ``never``: kinds that are wrong even
    where nothing else is known. ``untrue``: patterns of which none may be in the story.
    """

    root: tuple[str, ...] = ()
    at: str = ""
    says: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    untrue: tuple[str, ...] = ()


@dataclass(frozen=True)
class Expect:
    """What must be said, in the names that the truth gives to words, descriptors and roles.

    ``words``: those that end the loop: the first word named must be one of them. ``also``: further
    words of the same condition. ``name``: a pattern of the word's name, where nobody but the
    runtime can tell its address. ``python``: a pattern of what a Python loop or a script waits for.
    ``call`` and ``fd``: the call that comes back at once, and its descriptor. ``nothing``: no word
    may be named, and no culprit. ``innocents``: roles. ``telltale``: a pattern by which the answer
    of any other tool, such as gdb, counts.
    """

    words: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    name: str = ""
    python: str = ""
    call: tuple[str, ...] = ()
    fd: str = ""
    nothing: bool = False
    innocents: tuple[str, ...] = ()
    culprit: tuple[str, ...] = ()
    telltale: str = ""
    why: Why = field(default_factory=Why)


@dataclass(frozen=True)
class Case:
    """One program that hangs, spins, or does neither. ``name`` is unique in its family.
    ``input``: what it reads before ``stdin`` is as it says; ``good_input``: the good run's.
    ``seconds``: within which it is ready. ``recorded``: for how many `diagnose` records it.
    """

    family: str
    name: str
    folder: str
    part: str
    about: str
    language: str
    kind: str
    source: str
    needs: Needs
    build: tuple[str, ...]
    bad: tuple[str, ...]
    good: tuple[str, ...] | None
    truth: tuple[str, ...] | None
    after: tuple[str, ...] | None
    stdin: str
    input: str
    good_input: str
    seconds: float
    recorded: float
    verbs: tuple[str, ...]
    check: Check
    expect: Expect

    @property
    def id(self) -> str:
        """FAMILY/NAME."""
        return f"{self.family}/{self.name}"

    @property
    def sources(self) -> Path:
        """The folder of the recipe."""
        return FAMILIES / self.family

    @property
    def work(self) -> Path:
        """Where it is built: cases that are built in the same way share it."""
        return WORK / "built" / self.folder

    @property
    def is_negative(self) -> bool:
        """Nothing is to be named."""
        return self.kind == "negative"


def all_cases(chosen: Sequence[str] = (), part: str | None = None) -> list[Case]:
    """The cases whose family or id is ``chosen`` (all where nothing is), of a part."""
    found = [case for family in _families() for case in _cases(family)]
    for name in chosen:
        if not any(name in (case.id, case.family) for case in found):
            raise RecipeError(f"{name}: no such family or case")
    return [
        case
        for case in found
        if (not chosen or case.id in chosen or case.family in chosen) and part in (None, case.part)
    ]


def _families() -> Iterator[Path]:
    yield from sorted(FAMILIES.glob("*/family.toml"))


def _cases(path: Path) -> Iterator[Case]:
    try:
        recipe = tomllib.loads(path.read_text(encoding="utf-8"))
        own = recipe.pop("case", {"only": {}})
        for name, changes in own.items():
            yield _case(path.parent.name, name, {**recipe, **changes})
    except (RecipeError, tomllib.TOMLDecodeError, TypeError, KeyError) as error:
        raise RecipeError(f"{path.relative_to(ROOT)}: {error}") from error


def _case(family: str, name: str, keys: dict[str, Any]) -> Case:
    keys = _filled(keys, keys.pop("vars", {}))
    keys = _filled(keys, {"src": str(FAMILIES / family), "root": str(ROOT)})
    built = json.dumps([keys.get("build", family), keys.get("needs", {}).get("npm")])
    folder = hashlib.sha256(built.encode()).hexdigest()[:12]
    keys = _filled(
        keys,
        {
            "work": str(WORK / "built" / folder),
            "venv": str(WORK / "venv" / family),
            "python": str(python_of(family, keys.get("needs", {}).get("pip", ()))),
        },
    )
    kind, part = keys.pop("kind"), keys.pop("part")
    if kind not in KINDS or part not in PARTS:
        raise RecipeError(f"no kind {kind!r}, or no part {part!r}")

    def words(key: str) -> tuple[str, ...] | None:
        line = keys.pop(key, None)
        return None if line is None else tuple(shlex.split(line))

    check = dict(keys.pop("check", {}))
    if "released_by" in check:
        word, value = check["released_by"]
        check["released_by"] = (word, int(value))
    check.setdefault("waiter", WAITER[kind])
    if check["waiter"] not in WAITERS:
        raise RecipeError(f"no waiter {check['waiter']!r}")
    expect = dict(keys.pop("expect", {}))
    why = dict(expect.pop("why", {}))
    if kind in ("endless", "collector"):
        why.setdefault("root", "computes")
        expect.setdefault("nothing", not {"words", "name", "call", "python"} & expect.keys())
    why = _made(Why, why)
    build = keys.pop("build", [])
    case = Case(
        family=family,
        name=name,
        folder=folder,
        part=part,
        about=keys.pop("about"),
        language=keys.pop("language"),
        kind=kind,
        source=keys.pop("source"),
        needs=_made(Needs, keys.pop("needs", {})),
        build=tuple([build] if isinstance(build, str) else build),
        bad=words("bad") or (),
        good=words("good"),
        truth=words("truth"),
        after=words("after"),
        stdin=keys.pop("stdin", "null"),
        input=keys.pop("input", ""),
        good_input=keys.pop("good_input", ""),
        seconds=float(keys.pop("seconds", 20)),
        recorded=float(keys.pop("recorded", 8)),
        verbs=tuple(keys.pop("verbs", VERBS[kind])),
        check=_made(Check, check),
        expect=_made(Expect, {**expect, "why": why}),
    )
    if keys:
        raise RecipeError(f"unknown: {', '.join(keys)}")
    if not case.bad:
        raise RecipeError("no command `bad`")
    if case.stdin not in STDIN:
        raise RecipeError(f"no stdin {case.stdin!r}")
    if unknown := set(case.verbs) - set(ALL_VERBS):
        raise RecipeError(f"no verb {', '.join(unknown)}")
    if {"diff", "find"} & set(case.verbs) and case.good is None:
        raise RecipeError("`diff` and `find` need a good run")
    if "find" in case.verbs and case.stdin != "null":
        raise RecipeError("`find` gives the program no input")
    says_nobody = case.is_negative or case.expect.nothing
    if "diagnose" in case.verbs and not case.expect.culprit and not says_nobody:
        raise RecipeError("`diagnose` needs a culprit, or that there is none")
    if {"why", "why-core", "guard"} & set(case.verbs) and not _expects_of_why(case):
        raise RecipeError("nothing is expected of `why`")
    return case


def _expects_of_why(case: Case) -> bool:
    expect, why = case.expect, case.expect.why
    return bool(
        case.is_negative
        or expect.words
        or expect.name
        or expect.call
        or expect.python
        or why.root
        or why.says
        or why.never
    )


def python_of(family: str, packages: Sequence[str]) -> Path:
    """The interpreter of a family: with its packages, in an environment of its own."""
    return WORK / "venv" / family / "bin" / "python" if packages else Path("/usr/bin/python3")


def _filled(value: Any, known: Mapping[str, str]) -> Any:
    """Other braces stay: they are the shell's or the language's."""
    if isinstance(value, str):
        for name, text in known.items():
            value = value.replace(f"{{{name}}}", text)
        return value
    if isinstance(value, list):
        return [_filled(one, known) for one in value]
    if isinstance(value, dict):
        return {key: _filled(one, known) for key, one in value.items()}
    return value


def _made(kind: Any, keys: Mapping[str, Any]) -> Any:
    """A data class from a table; a text stands for a list of one."""
    known = {one.name: one for one in fields(kind)}
    if unknown := keys.keys() - known.keys():
        raise RecipeError(f"{kind.__name__.lower()}: unknown: {', '.join(unknown)}")
    made = {}
    for name, value in keys.items():
        is_list = known[name].type == "tuple[str, ...]"
        made[name] = tuple([value] if isinstance(value, str) else value) if is_list else value
    return kind(**made)
