# SPDX-License-Identifier: MIT
"""Dataclasses that are made with their first object."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flagfinder.shared.record import dataclass, field, fields, replace


@dataclass(frozen=True)
class Base:
    number: int
    words: list[str] = field(default_factory=list, compare=False)


@dataclass(frozen=True)
class Further(Base):
    name: str = ""


class Heir(Further):
    """Adds no fields."""


@dataclass
class Open:
    number: int = 0


def test_a_class_is_made_with_its_bases_when_the_first_object_is() -> None:
    one = Heir(1, name="a")
    assert (one, hash(one)) == (Heir(1, ["other"], "a"), hash(Heir(1, name="a")))
    assert repr(Further(1)) == "Further(number=1, words=[], name='')"
    assert replace(one, number=2).number == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.number = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        Base()  # type: ignore[call-arg]
    match Base(7):
        case Base(number, _):
            assert number == 7


def test_fields_are_known_without_an_object() -> None:
    assert [one.name for one in fields(Further)] == ["number", "words", "name"]


def test_an_object_from_another_process_makes_its_class() -> None:
    """As what a child of ours sends."""
    content = pickle.dumps((Open(5), Open(6)))
    script = "import pickle, sys; print(*pickle.loads(bytes.fromhex(sys.argv[1])))"
    here = Path(__file__)
    words = [sys.executable, "-c", f"import {here.stem}; {script}", content.hex()]
    done = subprocess.run(words, cwd=here.parent, capture_output=True, text=True, check=True)
    assert done.stdout == "Open(number=5) Open(number=6)\n"


def test_threads_that_make_a_class_at_once_do_it_once() -> None:
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(50):

            @dataclass(frozen=True)
            class Kind:
                number: int

            with ThreadPoolExecutor(4) as pool:
                made = list(pool.map(Kind, range(20)))
            assert [one.number for one in made] == list(range(20))
    finally:
        sys.setswitchinterval(0.005)


def test_what_would_be_lost_is_refused() -> None:
    with pytest.raises(TypeError, match=r"dataclasses\.dataclass"):

        @dataclass
        class _Own:
            def __init__(self) -> None:
                pass
