"""An lldb of its own that runs one of our scripts, and two pipes to it.

The script gets lines on one pipe and answers on the other. It lets go of its process when the first is closed, so also
when this process dies. SIGKILL to the helper itself leaves its breakpoints behind: its command line says so.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from flagfinder.errors import UnavailableError
from flagfinder.trappers import shipped

_NEWEST, _OLDEST = 30, 18  # before 18, writes of the same value do not trap
_SECONDS = 60.0


def find_lldb() -> str | None:
    """An lldb that is new enough, the newest first; None when there is none. ``FF_LLDB`` names the one to use."""
    if given := os.environ.get("FF_LLDB"):
        return shutil.which(given)
    names = [f"lldb-{version}" for version in range(_NEWEST, _OLDEST - 1, -1)] + ["lldb"]
    return next((found for name in names if (found := shutil.which(name))), None)


class LldbHelper:
    """Runs ``lldb_scripts/{script}.py`` in lldb. ``source`` is where it answers; the owner reads and closes it.

    Raises UnavailableError, which ends with ``still_works``, when there is no lldb.
    """

    def __init__(self, script: str, still_works: str) -> None:
        lldb = find_lldb()
        if lldb is None:
            raise UnavailableError(
                "lldb is not installed",
                f"there is no {os.environ.get('FF_LLDB') or f'lldb-{_OLDEST} or newer'}",
                "apt install lldb-22, or name one with FF_LLDB.",
                still_works,
            )
        self.name = Path(lldb).name
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  closed with the helper
        their_wishes, wishes = os.pipe()
        self.source, their_answers = os.pipe()
        self._wishes: int | None = wishes
        path = shipped("lldb_scripts", f"{script}.py")
        self._process = subprocess.Popen(
            [
                *(lldb, "--no-lldbinit", "--batch", "-o", f"command script import {_quoted(path)}"),
                *("-o", f"script {script}.main(lldb.debugger) # do not kill: ends by itself with {os.getpid()}"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=subprocess.STDOUT,
            pass_fds=(their_wishes, their_answers),
            env={**os.environ, "FF_LLDB_HELPER": f"{their_wishes} {their_answers}", "PYTHONDONTWRITEBYTECODE": "1"},
            start_new_session=True,  # Ctrl-C is for us
        )
        os.close(their_wishes)
        os.close(their_answers)

    @property
    def pid(self) -> int:
        """Of lldb."""
        return self._process.pid

    def tell(self, line: str) -> None:
        """Hands over a line; one that nobody wants any more is dropped."""
        if self._wishes is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._wishes, line.encode() + b"\n")

    def let_go(self) -> None:
        """Asks it to end. May be called twice."""
        if self._wishes is not None:
            os.close(self._wishes)
            self._wishes = None

    def finish(self) -> bool:
        """Waits for its end; whether it has ended. It is never killed: that would leave breakpoints behind."""
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
        return self._said.read().decode(errors="replace").strip()[-2000:] or "it ended without a word"

    def close(self) -> None:
        """Forgets what it printed."""
        self._said.close()


def _quoted(path: Path) -> str:
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'
