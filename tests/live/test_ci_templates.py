# SPDX-License-Identifier: MIT
"""The templates for GitHub and GitLab run a command as they say."""

from __future__ import annotations

import os
import shlex
import subprocess
import textwrap
from pathlib import Path

import pytest
from harness import FLAGFINDER, ROOT

HANGS = "echo begins; sleep 1000"


def installed(folder: Path) -> None:
    """A command in place of the one that pip would install there."""
    program = folder / "bin/flagfinder"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {shlex.join(FLAGFINDER)} "$@"\n')
    program.chmod(0o755)


def block(text: str, begin: str) -> str:
    """The lines below `begin` that are indented more."""
    lines = text.partition(f"{begin}\n")[2].splitlines()
    indent = len(lines[0]) - len(lines[0].lstrip())
    inside: list[str] = []
    for line in lines:
        if len(line) - len(line.lstrip()) < indent:
            break
        inside.append(line)
    return textwrap.dedent("\n".join(inside))


def run(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.live
def test_the_action_of_github(tmp_path: Path) -> None:
    action = (ROOT / "ci/guard/action.yml").read_text()
    installed(tmp_path / "flagfinder")
    guard = action.partition("- name: Guard")[2]
    names = [line.split(":")[0] for line in block(guard, "      env:").splitlines()]
    values = {"COMMAND": HANGS, "AFTER": "2", "OUTPUT": str(tmp_path / "out")}
    assert sorted(names) == sorted(values)
    summary = tmp_path / "summary"
    github = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}
    script = block(guard, "      run: |")
    ran = run(script, tmp_path, RUNNER_TEMP=str(tmp_path), **values, **github)
    assert ran.returncode == 124, ran.stderr
    assert "::error title=The command hangs::" in ran.stdout
    assert "### The command hangs" in summary.read_text()
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "why.txt",
        "why.json",
        "why.html",
    }
    values["COMMAND"] = "false | true"
    assert run(script, tmp_path, RUNNER_TEMP=str(tmp_path), **values).returncode == 1


@pytest.mark.live
def test_the_job_of_gitlab(tmp_path: Path) -> None:
    job = (ROOT / "ci/guard.gitlab-ci.yml").read_text()
    installed(tmp_path / ".flagfinder")
    script = block(job, "    - |")
    ran = run(script, tmp_path, FLAGFINDER_RUN=HANGS, FLAGFINDER_AFTER="2")
    assert ran.returncode == 124, ran.stderr
    assert 'type="hang"' in (tmp_path / "flagfinder.xml").read_text()
    assert (tmp_path / "flagfinder/why.html").is_file()
    for name in ("flagfinder.xml", "paths:\n      - flagfinder\n"):
        assert name in job
