# SPDX-License-Identifier: MIT
"""`--json`: stdout holds one JSON object and nothing else, for every verb, whatever happens. It is
as docs/formats says.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import schemas
from harness import flagfinder
from sizes import in_turn

from flagfinder.cli.command import main

from .verbs import VERBS, Files, command_line

# What `command_line` starts in these prints "ready 7".
PRINTS = ("record", "find", "events record", "guard")
each_verb = pytest.mark.parametrize("verb", VERBS)


def with_option(words: list[str], *option: str) -> list[str]:
    """The command line with an option of ours, in front of the program's own words."""
    place = words.index("--") if "--" in words else len(words)
    return [*words[:place], *option, *words[place:]]


def one_object(stdout: str) -> dict[str, Any]:
    fields = json.loads(stdout)
    assert isinstance(fields, dict)
    assert fields["schema"].startswith("flagfinder.")
    schemas.validate(fields)
    return fields


@pytest.mark.parametrize("verb", in_turn(VERBS))
def test_stdout_is_one_object(verb: str, files: Files) -> None:
    words = with_option(command_line(verb, files), "--json")
    done = flagfinder(*words)
    fields = one_object(done.stdout)
    if (
        fields["schema"] == "flagfinder.error/1"
    ):  # not permitted here, or a word that nobody may write to
        assert fields["exit_code"] == done.returncode
        assert fields["error"]["what"] in done.stderr
        assert verb in (
            "poke",
            "watch",
            "spin",
            "why",
            "events record",
            "events top",
            "overhead",
        ), fields
    else:
        assert done.returncode in (0, 1), done.stderr
    if verb in PRINTS and done.returncode == 0:
        assert "ready 7" in done.stderr


@each_verb
def test_a_failure_is_one_object(verb: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*verb.split(), "--json", "--no-such-option"]) == 2
    printed, said = capfd.readouterr()
    fields = one_object(printed)
    assert (fields["schema"], fields["exit_code"]) == ("flagfinder.error/1", 2)
    assert set(fields["error"]) == {"what", "found", "fix", "still_works"}
    for part in fields["error"].values():
        assert part.splitlines()[0] in said


def test_with_a_file_stdout_is_the_program_s(files: Files, tmp_path: Path) -> None:
    words = with_option(command_line("record", files), "--json-file", str(tmp_path / "x.json"))
    done = flagfinder(*words)
    assert (done.returncode, done.stdout) == (0, "ready 7\n")
    assert one_object((tmp_path / "x.json").read_text())["schema"] == "flagfinder.record/1"


def test_a_failure_goes_to_the_file(tmp_path: Path) -> None:
    done = flagfinder("trace", "info", "--json-file", tmp_path / "x.json", "/no/such/file")
    assert done.stdout == ""
    assert one_object((tmp_path / "x.json").read_text())["schema"] == "flagfinder.error/1"


@pytest.mark.parametrize(
    "options",
    [("--json-file", "/no/such/folder/x.json"), ("--json", "--json-file", "x.json")],
    ids=["no-folder", "both"],
)
def test_a_file_that_can_t_be_written_is_said_first(
    options: tuple[str, ...], files: Files, tmp_path: Path
) -> None:
    done = flagfinder(
        "record", *options, "-o", "x.trace", "--", files.program, "normal", cwd=tmp_path
    )
    assert done.returncode == 2
    assert "found:" in done.stderr
    assert not (tmp_path / "x.trace").exists()


def test_a_name_that_is_no_text_is_escaped(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Python has lone surrogates for such bytes, which no UTF-8 has; JSON's escapes can write
    them.
    """
    assert main(["record", "--json", "-o", str(tmp_path / "x.trace"), "--", "./no-\udcff"]) == 2
    assert "no-\udcff" in one_object(capfd.readouterr().out)["error"]["found"]


def test_an_interrupted_command_is_one_object(files: Files, tmp_path: Path) -> None:
    """Ctrl-C at the good run, also where the tests were started with SIGINT ignored: there is no
    answer.
    """
    words = [
        "find",
        "--json",
        "-d",
        tmp_path,
        "--normal",
        "env --default-signal=INT sh -c 'kill -INT $$'",
        "--spin",
        f"{files.program} spin",
    ]
    done = flagfinder(*words)
    assert done.returncode == 130
    assert one_object(done.stdout)["exit_code"] == 130
