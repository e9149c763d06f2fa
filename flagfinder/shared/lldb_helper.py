# SPDX-License-Identifier: MIT
"""An lldb of its own that runs one of our scripts, and two pipes to it.

The script gets lines on one pipe and answers on the other. It lets go of its process when the first
is closed, so also when this process dies. SIGKILL to the helper itself leaves its breakpoints
behind: its command line says so.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from flagfinder.shared.errors import UnavailableError
from flagfinder.shared.helper import ends_with_us
from flagfinder.shared.places import shipped

_NEWEST = 30
OLDEST = 18  # before, writes of the same value do not trap
_SECONDS = 60.0
_VERSION = re.compile(r"lldb version (\d+)")
_FIX = "apt install lldb-22, or name a newer one with FF_LLDB."


def find_lldb() -> str | None:
    """The path of an lldb that is new enough, None when there is none. See ``choose_lldb``."""
    try:
        return choose_lldb("")
    except UnavailableError:
        return None


def choose_lldb(still_works: str) -> str:
    """The path of the newest lldb, or of the one that ``FF_LLDB`` names.

    Raises UnavailableError, which ends with ``still_works``, when there is none, or none is new
    enough.
    """
    given = os.environ.get("FF_LLDB")
    names = (
        [given]
        if given
        else [*(f"lldb-{version}" for version in range(_NEWEST, OLDEST - 1, -1)), "lldb"]
    )
    found = [path for name in names if (path := shutil.which(name))]
    answers = {}
    for path in found:
        answers[path] = _asked(path)
        if _is_new_enough(answers[path]):
            return path
    if not found:
        missing = given or f"lldb-{OLDEST} or newer"
        raise UnavailableError("lldb is not installed", f"there is no {missing}", _FIX, still_works)
    said = "; ".join(f"{path} says {answer!r}" for path, answer in answers.items())
    raise UnavailableError(f"lldb {OLDEST} or newer is needed", said, _FIX, still_works)


def require_version(answer: str, still_works: str) -> None:
    """Raises UnavailableError unless this is what an lldb that is new enough says of itself."""
    if not _is_new_enough(answer):
        found = f"this one says {answer!r}"
        raise UnavailableError(f"lldb {OLDEST} or newer is needed", found, _FIX, still_works)


def _is_new_enough(answer: str) -> bool:
    version = _VERSION.search(answer)
    return version is not None and int(version[1]) >= OLDEST


@cache
def _asked(path: str) -> str:
    """What ``lldb --version`` says: its first line, or why it says nothing."""
    try:
        ran = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            preexec_fn=ends_with_us(),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (ran.stdout.strip() or ran.stderr.strip() or "nothing").splitlines()[0]


class LldbHelper:
    """Runs ``lldb_scripts/{script}.py`` in lldb. ``source`` is where it answers; the owner reads
    and closes it.

    Raises UnavailableError, which ends with ``still_works``, when there is no lldb that is new
    enough.
    """

    def __init__(self, script: str, still_works: str) -> None:
        lldb = choose_lldb(still_works)
        self.name = Path(lldb).name
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  closed with the helper
        their_wishes, wishes = os.pipe()
        self.source, their_answers = os.pipe()
        self._wishes: int | None = wishes
        path = shipped("lldb_scripts", f"{script}.py")
        self._process = subprocess.Popen(
            [
                *(lldb, "--no-lldbinit", "--batch", "-o", f"command script import {_quoted(path)}"),
                *(
                    "-o",
                    f"script {script}.main(lldb.debugger) # do not kill: ends by itself with "
                    f"{os.getpid()}",
                ),
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=subprocess.STDOUT,
            pass_fds=(their_wishes, their_answers),
            env={
                **os.environ,
                "FF_LLDB_HELPER": f"{their_wishes} {their_answers}",
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            start_new_session=True,  # Ctrl-C is for us
        )
        os.close(their_wishes)
        os.close(their_answers)

    @property
    def pid(self) -> int:
        """Process id of lldb."""
        return self._process.pid

    def tell(self, line: str) -> None:
        """Hands over a line; it is dropped if the helper has ended."""
        if self._wishes is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._wishes, line.encode() + b"\n")

    def let_go(self) -> None:
        """Asks it to end. May be called twice."""
        if self._wishes is not None:
            os.close(self._wishes)
            self._wishes = None

    def finish(self) -> bool:
        """Waits for its end; whether it has ended. It is never killed: that would leave breakpoints
        behind.
        """
        self.let_go()
        try:
            self._process.wait(timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        return True

    def last_words(self) -> str:
        """What it printed, once it has ended."""
        if not self.finish():
            return "it doesn't answer"
        self._said.seek(0)
        return (
            self._said.read().decode(errors="replace").strip()[-2000:] or "it ended without a word"
        )

    def close(self) -> None:
        """Forgets what it printed."""
        self._said.close()


def _quoted(path: Path) -> str:
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'
