# SPDX-License-Identifier: MIT
"""What a case says of its flag, checked on a flag that `diff` or `spin` names.

Each folder of `cases` has what the case needs besides Debian's packages (`packages.txt`), and its
truth, `expect.json`:

- `build`: commands; `{src}` is this folder. `needs`: further programs.
- `command`, `normal`, `spin`: how the program is driven (`driver.py`). `driver` names another way
  than feeding standard input. `options` under `spin` replaces how the recording is ended.
- `flag`: what rank 1 must be. Offsets are given only for symbols that the test looks up itself with
  `nm -D`. `announced`: the program prints the address itself.
- `waits_until`: what the program's own Python code asks.
- `owed`: how `spin` knows who owes the write. `budget`: what `spin` is given where the usual one
  suffices on an idle machine only.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import announced_flags, leaves, live_or_skip, run
from sizes import param

CASES = Path(__file__).parent / "cases"


def all_cases(usual: int, turn: int, of: int = 2, long: Sequence[str] = ()) -> list[Any]:
    """Folder and variant of each case. In `make test` is every `of`-th case, from that of index
    `turn` on, with its variant of index `usual`. Those that take ``long`` are for `make soak`.
    """
    found = []
    for index, path in enumerate(sorted(CASES.glob("*/expect.json"))):
        variants = ["plain", *json.loads(path.read_text()).get("variants", {})]
        for variant in variants:
            name = f"{path.parent.name}-{variant}"
            is_in_turn = index % of == turn and path.parent.name not in long
            is_usual = variant == variants[usual] and is_in_turn
            found += param(path.parent, variant, name=name, usual=is_usual)
    return found


def build(source: Path, expect: dict[str, Any], variant: str, work: Path) -> list[str]:
    """Builds a case in `work`; the command that runs it."""
    for command in expect.get("build", []):
        words = [word.format(src=source) for word in command]
        if shutil.which(words[0]) is None:
            live_or_skip(f"{words[0]} is not installed")
        built = run(words, timeout=300, cwd=work, env=expect.get("build_environment"))
        assert built.returncode == 0, built.stderr
    words = expect["command"] if variant == "plain" else expect["variants"][variant]
    command = [word.format(src=source) for word in words]
    for program in [command[0], *expect.get("needs", [])]:
        if not program.startswith("./") and shutil.which(program) is None:
            live_or_skip(f"{program} is not installed")
    return command


def symbol_offset(image: str, symbol: str, work: Path) -> int:
    """Where a symbol lies in its module, from its symbol tables."""
    for table in (["nm"], ["nm", "-D"]):
        listed = run([*table, image], timeout=60, cwd=work).stdout
        found = re.search(rf"^([0-9a-f]+) \w {re.escape(symbol)}$", listed, re.M)
        if found:
            return int(found[1], 16)
    raise AssertionError(f"{image} has no symbol {symbol}")


def assert_true_flag(
    flags: list[dict[str, Any]], truth: dict[str, Any], error: str, work: Path
) -> None:
    """The first of `flags` is the true one. `error`: what the program wrote to stderr."""
    flag = flags[0]
    named = [
        (f["rank"], f["name"], f["kind"], f["module"], f["offset"], f["confidence"]) for f in flags
    ]
    assert flag["rank"] == 1 and flag["kind"] == truth["kind"], named
    if "size" in truth:
        assert flag["size"] == truth["size"], named
    if truth.get("announced"):
        # The program printed where the word it waits for lies; the last line is that of the wait
        # that hangs.
        assert (int(flag["address"]["spin"], 16), flag["size"]) == announced_flags(error)[-1], named
    if "name" in truth:
        assert flag["name"].startswith(truth["name"]), named
    if "address_of" in truth:
        # A fixed-address program (Go) has its link-time address; offsets are relative to where the
        # module begins.
        assert int(flag["offset"], 16) == symbol_offset(
            truth["address_in"], truth["address_of"], work
        ), named
    if "module" in truth:
        assert Path(flag["module"]).name == truth["module"]
    if "value" in truth:
        mask = int(truth.get("value_mask", "0xffffffffffffffff"), 16)
        assert int(flag["value"]["spin"], 16) & mask == truth["value"], named
    if "multiple_of" in truth:
        assert int(flag["value"]["spin"], 16) % truth["multiple_of"] == 0, named
    if "reader_module" in truth:
        assert any(
            Path(r["module"]).name.startswith(truth["reader_module"]) for r in flag["readers"]
        ), flag["readers"]
    for value in truth.get("exit_not", []):
        assert not leaves(flag["exit_when"], value), flag["exit_when"]
