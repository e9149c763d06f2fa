# SPDX-License-Identifier: MIT
"""The backend ``lldb``: a debugger in a helper process stops the process at every access and lets
it run on.

In: a pid and words. Out: records of hits. Every access stops all threads for a moment; those by the
kernel do not trap. The helper notices when this process dies, and lets go. SIGKILL to the helper
itself leaves the watchpoints behind, and the next access kills the process: its command line says
so.
"""

from __future__ import annotations

import json
import os
import select
import threading

from flagfinder.shared.errors import UnavailableError
from flagfinder.shared.lldb_helper import LldbHelper
from flagfinder.watch.records import Records
from flagfinder.watch.trapper import Word

_SECONDS = 60.0
_RECORDS = 1 << 20


class LldbTrapper:
    """A running helper. Raises UnavailableError when there is no lldb, or when it can't attach or
    watch.
    """

    lost = 0

    def __init__(self, pid: int, words: list[Word], _config: bytes) -> None:
        self.notes: list[str] = []
        self._records = Records()
        self._stopped = False
        self._helper = LldbHelper("ff_helper", "--backend perf needs no debugger.")
        try:
            self._helper.tell(json.dumps({"pid": pid, "words": [vars(word) for word in words]}))
            error = self._answer()
        except BaseException:
            self._helper.let_go()
            raise
        if error is not None:
            self._stopped = True
            self._finish()
            raise UnavailableError(
                f"{self._helper.name} can't watch process {pid}",
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
            readable, _, _ = select.select([self._helper.source], [], [], _SECONDS)
            byte = os.read(self._helper.source, 1) if readable else b""
            if not byte:
                return self._helper.last_words()
            line += byte
        error: str | None = json.loads(line)["error"]
        return error

    def _read(self) -> None:
        while records := os.read(self._helper.source, _RECORDS):
            self._records.put(records)
        os.close(self._helper.source)
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
        if self._stopped:
            return b""
        self._stopped = True
        self._helper.let_go()
        rest = []
        while not self.over:
            rest.append(self.take(_SECONDS))
            if not rest[-1]:
                break  # it has ended; or it hangs, and can't be killed without harm
        self._finish()
        return b"".join(rest)

    def _finish(self) -> None:
        if not self._helper.finish():
            self.notes.append(f"lldb (process {self._helper.pid}) has not ended yet")
        self._helper.close()
