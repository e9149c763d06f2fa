# SPDX-License-Identifier: MIT
"""An option that a failure or a hint names is one that its verb has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from flagfinder.cli.command import build_parser
from flagfinder.cli.common import VERBS
from flagfinder.live.apart import LeftBehind

FLAGFINDER = Path(__file__).parents[2] / "flagfinder"
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
COMMAND = re.compile(r"flagfinder ([a-z-]+)[^`;\n]*")
# What these modules say of options only this verb lets happen.
OF_ONE_VERB = {"graph/graph.py": "graph", "record/record.py": "record"}
# Options of other programs: unshare, pip, perf, apt-get.
OF_OTHERS = {"--mount-proc", "--force-reinstall", "--mmap-pages", "--no-install-recommends"}


def verbs() -> dict[str, Path]:
    """Where each verb is made."""
    made = {}
    for path in sorted((FLAGFINDER / "cli").glob("*.py")):
        for verb in re.findall(r'VERBS\["([a-z-]+)"\]', path.read_text(encoding="utf-8")):
            made[verb] = path
    return made


def imported(path: Path) -> Iterator[Path]:
    """Modules of ours that a module names, but for those that the verbs share."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and "flagfinder." in node.module:
            place = FLAGFINDER.parent / node.module.replace(".", "/")
            found = (place.with_suffix(".py"), place / "__init__.py")
            yield from (one for one in found if one.exists() and one.parent.name != "cli")


def told(path: Path) -> Iterator[str]:
    """What a module says in failures and hints; parts between values apart."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name.endswith("Error"):
                pass
            case ast.Call(func=ast.Attribute(attr="message" | "warning")):
                pass
            case _:
                continue
        for text in ast.walk(node):
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield text.value


def unknown(verb: str, text: str) -> set[str]:
    """The options in a text that neither the verb has nor a command that the text names."""
    lacks = set()
    for command in COMMAND.finditer(text):
        if command[1] in VERBS:
            lacks |= set(OPTION.findall(command[0])) - options(command[1])
    return lacks | set(OPTION.findall(COMMAND.sub("", text))) - options(verb) - OF_OTHERS


def options(verb: str) -> set[str]:
    return set(build_parser([verb]).options_of(verb))


@pytest.mark.parametrize("verb", sorted(verbs()))
def test_each_named_option_is_one_of_the_verb(verb: str) -> None:
    own = verbs()[verb]
    chain = {path for path in imported(own) if path.parent.name == "chain"}
    modules = {own, *imported(own)}.union(*(set(imported(path)) for path in chain))
    texts = [
        (path.name, text)
        for path in sorted(modules)
        if OF_ONE_VERB.get(f"{path.parent.name}/{path.name}", verb) == verb
        for text in told(path)
    ]
    wrong = {(name, option) for name, text in texts for option in unknown(verb, text)}
    assert not wrong


def test_a_verb_that_cuts_questions_off_has_the_limit_that_it_names() -> None:
    asks = {verb for verb, path in verbs().items() if "ask_apart" in path.read_text("utf-8")}
    assert asks >= {"guard", "poke"}
    assert {verb for verb in asks if unknown(verb, LeftBehind("", "").fix)} == set()
    assert "--timeout" in LeftBehind("", "").fix


def test_an_option_that_a_verb_lacks_is_found() -> None:
    assert unknown("poke", "Add --in-place.") == {"--in-place"}
    assert unknown("poke", "Run `flagfinder spin PID --in-place`.") == set()
    assert unknown("poke", "Run `flagfinder spin PID --dry-run`.") == {"--dry-run"}
