# SPDX-License-Identifier: MIT
"""What the waiting thread's Python code says of the answer: the trace keeps it at its end.

A trace may come from anybody, and so may its code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from flagfinder import _core
from flagfinder.flags.loop_condition import of_python
from flagfinder.flags.python_objects import is_interpreters, regrouped
from flagfinder.flags.python_word import sort_words
from flagfinder.interpreters.fields import PythonFields
from flagfinder.interpreters.python import PythonCode, PythonLoop
from flagfinder.shared.fits import fits

if TYPE_CHECKING:
    from flagfinder.flags.fields import DiffFields, FlagFields

_NOT_ASKED = "it was not asked about: Python code named it"


def code_of(codes: Mapping[str, object], tid: int | None) -> PythonCode | None:
    """The code of a thread, from the field ``code`` of a trace's end. None where there is none that
    makes sense.
    """
    raw = codes.get(str(tid))
    if raw is None or not fits(raw, PythonFields):
        return None
    try:
        return PythonCode.from_raw(raw)  # type: ignore[arg-type]
    except (KeyError, TypeError):
        return None


def add_code(report: DiffFields, code: PythonCode) -> None:
    """Puts the word first that the thread's Python loop asks for, and names it by the code. Without
    one the interpreter's own words are no flags.
    """
    report["python"] = code.to_raw()
    loop = code.loop
    if loop is None:
        return
    report["notes"] = [note for note in report["notes"] if note != _core.OF_INTERPRETER]
    if not loop.is_answer:
        return
    before = report["flags"]
    flags, considered = sort_words(before, report["considered"], loop)
    if flags and _is_named(flags[0], loop):
        flags[0]["owed_by_nobody"] = None if flags[0]["owed"] else _NOT_ASKED
        report["verdict"] = "data-flag"
        report["reason"] = f"the loop polls {flags[0]['name']}; it ends when {loop.when}"
    else:
        # What both runs tell of a number, a length or an object counts.
        flags = [word for word in before if not is_interpreters(word)]
        left = [word for word in before if is_interpreters(word)]
        considered = [*left, *report["considered"]]
        if before and not flags:
            report["verdict"] = "no-flag"
            report["reason"] = (
                f"the interpreter tests {before[0]['name']}, but the Python loop does not ask for "
                "it"
            )
    ranks = {_identity(word): rank for rank, word in enumerate([*flags, *considered], 1)}
    old = {word["rank"]: ranks[_identity(word)] for word in [*before, *report["considered"]]}
    report["flags"] = [{**word, "rank": ranks[_identity(word)]} for word in flags]
    report["considered"] = [{**word, "rank": ranks[_identity(word)]} for word in considered]
    report["groups"] = regrouped(report["groups"], old, len(flags))
    report["condition"] = of_python(loop, report["flags"])


def _identity(word: FlagFields) -> tuple[str, str | None, int | None]:
    return word["kind"], word["address"]["spin"], word["size"]


def _is_named(word: FlagFields, loop: PythonLoop) -> bool:
    return word["access_path"] is not None and word["exit_when"] == loop.when
