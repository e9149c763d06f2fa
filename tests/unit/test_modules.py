# SPDX-License-Identifier: MIT
"""Modules of the engine's crates must not need each other in circles.

In: the sources of each crate. A module needs another if it names something that the other defines;
names that a module only hands on (`pub use`) belong to their owner. Blind spots: what macros write,
and methods, whose owner no path names. Cargo refuses circles of crates, lint-imports those of
Python's modules.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

Module = tuple[str, ...]
LITERALS = re.compile(
    r"""//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?'(?:\\.[^']*|[^'\\\n])'""",
    re.DOTALL,
)
TEST_FILE = re.compile(
    r"#\[cfg\(test\)\]\s*(?:#\[path = [^\]]*\]\s*)?(?:pub(?:\([^)]*\))? )?mod (\w+);"
)
TEST_BLOCK = re.compile(r"#\[cfg\(test\)\]\s*mod \w+ \{.*?^\}", re.DOTALL | re.MULTILINE)
USE = re.compile(r"^\s*(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);", re.MULTILINE)
PATH = re.compile(r"(?<![\w:])[a-z_]\w*(?:::\w+)+")


@dataclass
class Source:
    """One file: the paths that it names, and what it hands on under a name."""

    path: Path
    named: list[list[str]] = field(default_factory=list)
    known_as: dict[str, list[str]] = field(default_factory=dict)
    handed_on: dict[str, list[str]] = field(default_factory=dict)


def branches(tree: str, trunk: Sequence[str] = ()) -> Iterator[tuple[str, list[str]]]:
    """The names that a use tree brings in, each with its path."""
    head, brace, rest = tree.strip().partition("{")
    if not brace:
        whole, _, alias = head.partition(" as ")
        path = [*trunk, *whole.split("::")]
        if len(path) > 1 and path[-1] == "self":
            path.pop()
        yield alias.strip() or path[-1], path
        return
    before = [*trunk, *(part for part in head.strip().split("::") if part)]
    depth, start = 0, 0
    inside = rest[: rest.rindex("}")]
    for place, letter in enumerate(inside + ","):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            if inside[start:place].strip():
                yield from branches(inside[start:place], before)
            start = place + 1


def read(path: Path) -> tuple[Source, set[str]]:
    """A file's names, and the modules that it declares for tests only."""
    text = LITERALS.sub(
        lambda found: " " if found[0].startswith("/") else '""', path.read_text(encoding="utf-8")
    )
    tests = set(TEST_FILE.findall(text))
    text = TEST_BLOCK.sub("", text)
    source = Source(path)
    for public, tree in USE.findall(text):
        for name, whole in branches(tree):
            source.known_as[name] = whole
            if public:
                source.handed_on[name] = whole
            else:
                source.named.append(whole)
    source.named += [found.split("::") for found in PATH.findall(USE.sub("", text))]
    return source, tests


def crate(folder: Path) -> dict[Module, Source]:
    """The modules of a crate, without its tests."""
    modules: dict[Module, Source] = {}
    tests: set[Module] = set()
    for path in sorted((folder / "src").rglob("*.rs")):
        parts = path.relative_to(folder / "src").with_suffix("").parts
        module = parts[:-1] if parts[-1] in ("lib", "main", "mod") else parts
        modules[module], declared = read(path)
        tests |= {(*module, name) for name in declared}
    return {module: source for module, source in modules.items() if module not in tests}


def owner(
    modules: dict[Module, Source], at: Module, path: list[str], hops: int = 8
) -> Module | None:
    """The module that defines what a path means in a module; None: another crate does."""
    here: Module = at
    first, *rest = path
    if first == "crate":
        here = ()
    elif first == "super":
        here = at[:-1]
        while rest and rest[0] == "super":
            here, rest = here[:-1], rest[1:]
    elif first == "self":
        pass
    elif (*at, first) in modules:
        here = (*at, first)
    elif first in modules[at].known_as and hops and modules[at].known_as[first][0] != first:
        return owner(modules, at, modules[at].known_as[first] + rest, hops - 1)
    else:
        return None
    for place, name in enumerate(rest):
        if (*here, name) in modules:
            here = (*here, name)
        elif name in modules[here].handed_on and hops:
            onward = modules[here].handed_on[name] + rest[place + 1 :]
            return owner(modules, here, onward, hops - 1)
        else:
            break
    return here


def needs(modules: dict[Module, Source]) -> dict[Module, set[Module]]:
    return {
        module: {
            found for path in source.named if (found := owner(modules, module, path)) is not None
        }
        - {module}
        for module, source in modules.items()
    }


def circles(arrows: dict[Module, set[Module]]) -> list[set[Module]]:
    """Groups of modules each of which reaches all others of its group."""
    reached = {}
    for module, needed in arrows.items():
        seen: set[Module] = set()
        ahead = list(needed)
        while ahead:
            at = ahead.pop()
            if at not in seen and at in arrows:
                seen.add(at)
                ahead += arrows[at]
        reached[module] = seen
    groups = {
        frozenset(b for b in reached[a] if a in reached[b]) for a in arrows if a in reached[a]
    }
    return [set(group) for group in groups]


def told(member: Path) -> set[str]:
    """A crate's circles in words."""
    groups = circles(needs(crate(member)))
    return {" ".join(sorted("::".join(module) or "lib" for module in group)) for group in groups}


def test_modules_do_not_need_each_other_in_circles() -> None:
    members = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["workspace"][
        "members"
    ]
    assert {(member, circle) for member in members for circle in told(ROOT / member)} == set()


@pytest.mark.parametrize(
    ("first", "second", "circle"),
    [
        ("use crate::b::{B, C};", "use super::a::A;", "a b"),
        ("use crate::{b::B as Other, c};", "fn f() { crate::a::g() }", "a b"),
        ("pub(crate) use crate::b::B;", "use crate::a::A;", ""),  # handed on only
        ("use crate::b::B;", "use crate::B;", ""),  # handed on to itself
        ("use crate::b::B;", "use crate::A;", "a b"),  # handed on by the crate
        ("use crate::b::B;", '// crate::a::A\nconst A: &str = "crate::a";', ""),
        ("use crate::b::B;", "#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}", ""),
    ],
)
def test_a_circle_is_seen(tmp_path: Path, first: str, second: str, circle: str) -> None:
    (tmp_path / "src").mkdir()
    sources = {
        "lib": "mod a;\nmod b;\nmod c;\npub use a::A;\npub use b::B;",
        "a": first,
        "b": second,
        "c": "",
    }
    for name, text in sources.items():
        (tmp_path / "src" / f"{name}.rs").write_text(text, encoding="utf-8")
    assert told(tmp_path) == ({circle} - {""})
