"""Marks: "here it hung", said in another terminal while a recording goes on.

A recorder listens on a socket named after its process id, in a folder that only root, or only its user, can write to.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from types import TracebackType

from flagfinder.errors import UsageError

_LONGEST = 500  # characters
_ROOT = Path("/run/flagfinder")


def _own_folder() -> Path:
    if os.geteuid() == 0:
        return _ROOT
    return Path(os.environ.get("XDG_RUNTIME_DIR", f"/tmp/flagfinder-{os.geteuid()}")) / "flagfinder"


class MarkInbox:
    """Where a recorder gets its marks. A machine on which no socket can be made has recordings without marks."""

    def __init__(self) -> None:
        self._path = _own_folder() / f"{os.getpid()}.sock"
        self._socket: socket.socket | None = None

    def __enter__(self) -> MarkInbox:
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            self._path.unlink(missing_ok=True)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            listener.bind(os.fspath(self._path))
            self._path.chmod(0o600)
            caller = os.environ.get("SUDO_UID", "")
            if os.geteuid() == 0 and caller.isdigit():
                os.chown(self._path, int(caller), -1)
            self._socket = listener
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._socket is not None:
            self._socket.close()
            self._path.unlink(missing_ok=True)

    def handles(self) -> list[int]:
        """What to wait on for the next mark."""
        return [] if self._socket is None else [self._socket.fileno()]

    def take(self) -> list[str]:
        """The marks that have come."""
        texts = []
        while self._socket is not None:
            try:
                texts.append(self._socket.recv(4 * _LONGEST).decode(errors="replace")[:_LONGEST])
            except BlockingIOError:
                break
        return texts


def mark(text: str, recorder: int | None = None) -> list[int]:
    """Writes a mark into all recordings that go on, or into that of one recorder; returns their process ids.

    The mark's time is when the recorder gets it, a fraction of a millisecond later. Raises UsageError for a text that
    is empty or too long, PermissionError where the recorder is another user's.
    """
    if not 0 < len(text) <= _LONGEST:
        raise UsageError("The mark can't be written", f"a text of {len(text)} characters", f"Write 1 to {_LONGEST}.")
    marked = []
    for path in sorted({path for folder in (_ROOT, _own_folder()) for path in folder.glob("*.sock")}):
        pid = int(path.stem) if path.stem.isdigit() else 0
        if recorder not in (None, pid):
            continue
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            try:
                sender.sendto(text.encode(), os.fspath(path))
            except (ConnectionRefusedError, FileNotFoundError):
                continue  # a recorder that was killed leaves its socket
        marked.append(pid)
    return marked
