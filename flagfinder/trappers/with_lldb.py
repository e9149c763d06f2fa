"""The backend ``lldb``: a debugger in a helper process stops the process at every access and lets it run on.

In: a pid and words. Out: records of hits. Every access stops all threads for a moment; those by the kernel do not trap.
The helper notices when this process dies, and lets go. SIGKILL to the helper itself leaves the watchpoints behind, and
the next access kills the process: its command line says so.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

from flagfinder.errors import UnavailableError
from flagfinder.trappers import Word, shipped
from flagfinder.trappers.records import Records

_NEWEST, _OLDEST = 30, 18  # before 18, writes of the same value do not trap
_SECONDS = 60.0
_RECORDS = 1 << 20


def find_lldb() -> str | None:
    """An lldb that is new enough, the newest first; None when there is none. ``FF_LLDB`` names the one to use."""
    if given := os.environ.get("FF_LLDB"):
        return given
    names = [f"lldb-{version}" for version in range(_NEWEST, _OLDEST - 1, -1)] + ["lldb"]
    return next((found for name in names if (found := shutil.which(name))), None)


class LldbTrapper:
    """A running helper. Raises UnavailableError when there is no lldb, or when it can't attach or watch."""

    def __init__(self, pid: int, words: list[Word]) -> None:
        self.notes: list[str] = []
        self._records = Records()
        self._closed = False
        lldb = find_lldb()
        if lldb is None:
            raise UnavailableError(
                "lldb is not installed",
                f"there is no lldb-{_OLDEST} or newer",
                "apt install lldb-22, or name one with FF_LLDB.",
                "--backend perf needs no debugger.",
            )
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  closed with the helper
        their_wishes, wishes = os.pipe()
        records, their_records = os.pipe()
        self._source, self._wishes = records, wishes
        scripts = shipped("lldb_scripts", "ff_helper.py").parent
        self._helper = subprocess.Popen(
            [
                *(lldb, "--no-lldbinit", "--batch", "-o", f"command script import {_quoted(scripts / 'ff_helper.py')}"),
                *("-o", f"script ff_helper.main(lldb.debugger) # do not kill: ends by itself with {os.getpid()}"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=subprocess.STDOUT,
            pass_fds=(their_wishes, their_records),
            env={**os.environ, "FF_LLDB_HELPER": f"{their_wishes} {their_records}", "PYTHONDONTWRITEBYTECODE": "1"},
            start_new_session=True,  # Ctrl-C is for us
        )
        os.close(their_wishes)
        os.close(their_records)
        try:
            wanted = {"pid": pid, "words": [vars(word) for word in words]}
            os.write(wishes, json.dumps(wanted).encode() + b"\n")
            error = self._answer()
        except BaseException:
            self._close()  # it lets go
            raise
        if error is not None:
            self._close()
            self._finish()
            raise UnavailableError(
                f"{Path(lldb).name} can't watch process {pid}",
                error,
                "End other debuggers of the process; run as its user or as root. "
                "`flagfinder doctor` tells what works here.",
                "--backend perf, which needs no ptrace.",
            )
        threading.Thread(target=self._read, daemon=True).start()

    def _answer(self) -> str | None:
        """Why it can't, or None."""
        line = b""
        while not line.endswith(b"\n"):
            readable, _, _ = select.select([self._source], [], [], _SECONDS)
            byte = os.read(self._source, 1) if readable else b""
            if not byte:
                return self._last_words()
            line += byte
        error: str | None = json.loads(line)["error"]
        return error

    def _last_words(self) -> str:
        self._close()
        try:
            self._helper.wait(timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            return "it doesn't answer"
        self._said.seek(0)
        return self._said.read().decode(errors="replace").strip()[-2000:] or "it ended without a word"

    def _read(self) -> None:
        while records := os.read(self._source, _RECORDS):
            self._records.put(records)
        os.close(self._source)
        self._records.end()

    @property
    def over(self) -> bool:
        """See ``Trapper``."""
        return self._records.over

    def take(self, patience: float) -> bytes:
        """See ``Trapper``."""
        return self._records.take(patience)

    def stop(self) -> bytes:
        """See ``Trapper``."""
        if self._closed:
            return b""
        self._close()
        rest = []
        while not self.over:
            rest.append(self.take(_SECONDS))
            if not rest[-1]:
                break  # it has ended; or it hangs, and can't be killed without harm
        self._finish()
        return b"".join(rest)

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            os.close(self._wishes)

    def _finish(self) -> None:
        try:
            self._helper.wait(timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            self.notes.append(f"lldb (process {self._helper.pid}) has not ended yet")
        self._said.close()


def _quoted(path: Path) -> str:
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'
