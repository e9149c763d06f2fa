# SPDX-License-Identifier: MIT
"""Marks: "here it hung", said in another terminal while a recording goes on.

One of events keeps them all; one of a trace ends at the first, and is asked for in so many words
(``END``). A recorder listens on a socket named after its command's process id, in a folder that
only root, or only its user, can write to.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from types import TracebackType

from flagfinder.shared.errors import UsageError
from flagfinder.shared.mark_folder import check_owner, folders, own_folder, recorder
from flagfinder.shared.record import dataclass
from flagfinder.shared.target import caller

# What a recorder's socket is called behind its process id: it takes marks, or ends with one.
MARK, END = ".sock", ".end"
_LONGEST = 500  # characters


class MarkInbox:
    """Where a recorder gets its marks. A machine on which no socket can be made has recordings
    without marks.
    """

    def __init__(self, kind: str = MARK) -> None:
        self._path = own_folder() / f"{recorder()}{kind}"
        self._socket: socket.socket | None = None

    def __enter__(self) -> MarkInbox:
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            check_owner(self._path.parent)
            self._path.unlink(missing_ok=True)
            _sweep(self._path.parent)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            listener.bind(os.fspath(self._path))
            self._path.chmod(0o600)
            user = caller()
            if user is not None:
                os.chown(self._path, user.pw_uid, -1)
            self._socket = listener
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
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


@dataclass(frozen=True)
class Marked:
    """The recorders that were marked, and those of other users that were not, by process id."""

    recorders: list[int]
    left_out: list[int]


def mark(
    text: str, recorder: int | None = None, kind: str = MARK, *, everyones: bool = False
) -> Marked:
    """Writes a mark into all recordings of this user that go on, or into that of one recorder.

    With ``END`` as ``kind`` it ends recordings of traces in place of that. ``everyones``: also
    those of other users, which root may mark. Under sudo the user is who called it.

    The mark's time is when the recorder gets it, a fraction of a millisecond later. Raises
    UsageError for a text that is empty or too long, PermissionError where the recorder is another
    user's, PermissionDeniedError where the user's own folder is.
    """
    if not 0 < len(text) <= _LONGEST:
        raise UsageError(
            "The mark can't be written",
            f"a text of {len(text)} characters",
            f"Write 1 to {_LONGEST}.",
        )
    user = caller()
    own = os.geteuid() if user is None else user.pw_uid
    marked, left_out = [], []
    with contextlib.suppress(FileNotFoundError):
        check_owner(own_folder())
    for path in sorted({path for folder in folders() for path in folder.glob(f"*{kind}")}):
        pid = int(path.stem) if path.stem.isdigit() else 0
        if recorder not in (None, pid):
            continue
        if recorder is None and not everyones and _owner(path) not in (None, own):
            if Path(f"/proc/{pid}").exists():  # it was not killed
                left_out.append(pid)
            continue
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            try:
                sender.sendto(text.encode(), os.fspath(path))
            except (ConnectionRefusedError, FileNotFoundError):
                continue  # a recorder that was killed leaves its socket
            except PermissionError:
                if recorder is not None:
                    raise
                left_out.append(pid)
                continue
        marked.append(pid)
    return Marked(marked, left_out)


def _sweep(folder: Path) -> None:
    """Removes the sockets of recorders that were killed: nobody listens there."""
    for path in folder.iterdir():
        if path.suffix in (MARK, END):
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asks:
                try:
                    asks.connect(os.fspath(path))
                except ConnectionRefusedError:
                    path.unlink(missing_ok=True)
                except OSError:
                    continue


def _owner(path: Path) -> int | None:
    """None: it is gone."""
    try:
        return path.lstat().st_uid
    except FileNotFoundError:
        return None
