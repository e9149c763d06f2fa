# SPDX-License-Identifier: MIT
"""A question, or work, in a process of its own, which can be left behind.

In: a question and its time limit. Out: its answer; or, where none comes, LeftBehind, which says
where the process that asked sits. What that process posts meanwhile is heard at once.

A thread in a call of the kernel that does not return (a file system whose server is dead) can't be
ended, and its process never goes away. So the command asks in a child, and outlives it. The child
ends when the command does. Programs that step threads notice that they have lost it, and let go.
Blind spot: the command must have one thread, since others are not there in the child.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import pickle
import select
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeVar, cast

from flagfinder import _core
from flagfinder.live.deadline import not_asked
from flagfinder.live.tree import descendants, descended
from flagfinder.shared.errors import UnavailableError
from flagfinder.shared.helper import ends_with_us
from flagfinder.shared.interruption import ENDING, held_back
from flagfinder.shared.mark_folder import listen_for
from flagfinder.shared.visible import visible

if TYPE_CHECKING:
    from flagfinder.live.fields import SpinFields, WhyFields

T = TypeVar("T")
Post = Callable[[object], None]
Told = Callable[[int, list[int]], object]

_GRACE = 2.0  # s beyond the limit: the engine ends what it has begun
_STUCK = 6.0  # s in one call to a file system's server: it is dead
_TICK = 0.25  # s between looks at what the child does
_SOON = 0.05  # s after which a signal is passed on
_ENDS = 0.5  # s that a killed child may take to be gone
_USES = 60.0  # s for a file of ours, on a disk that is slow
_LENGTH = 8  # bytes in front of each message
# Functions of the kernel that wait for a server: of FUSE, NFS, SMB, 9P, Ceph, autofs.
_OF_SERVERS = (
    "request_wait_answer",
    "fuse_",
    "rpc_",
    "nfs",
    "wait_for_response",
    "cifs",
    "p9_",
    "ceph_",
    "autofs",
)


class LeftBehind(UnavailableError):
    """The question got no answer in time. ``because`` says why it was cut off, ``where`` what its
    process did at last, ``untold`` what a report lacks then. ``longer`` gives it more time.
    """

    def __init__(self, because: str, where: str, longer: str = "`--timeout SECONDS`") -> None:
        super().__init__(
            "The question got no answer",
            f"{because}; {where}",
            f"{longer} gives it more time. A file system that does not answer needs its server: "
            "`umount -f` or `umount -l` lets go of it.",
            "What was asked about is as it was.",
        )
        self.because = because
        self.where = where
        self.untold = f"all that is not told here; {where}"


def ask_apart(
    question: Callable[[Post], T],
    limit: float,
    hear: Callable[[object], object] | None = None,
    meanwhile: Callable[[], object] = lambda: None,
) -> T:
    """The answer of ``question``, which runs in a child, or what it raised. ``hear`` is called with
    each thing that it posts, and ``meanwhile`` at first.

    Raises LeftBehind where the answer does not come within the limit and a short grace, or where
    the child waits for a dead server.
    """
    child = _Child.start(question)
    try:
        meanwhile()
        return cast("T", _answer(child, limit, hear or (lambda _: None)))
    finally:
        child.end()
        os.close(child.messages)
        os.close(child.words)


def use_apart(path: Path, use: Callable[[], object], limit: float = _USES) -> None:
    """Does what needs a file of ours, where need be in a process of its own: a file system that
    does not answer holds whoever uses it, and whoever has a file of it open when he ends. Raises
    what ``use`` raises, and OSError for such a file system.
    """
    if not _core.servers_may_be_silent():
        use()
        return
    try:
        ask_apart(lambda _: use(), limit)
    except LeftBehind as left:
        text = _core.silence_of(os.fspath(path)) or left.found
        raise TimeoutError(errno.ETIMEDOUT, text, os.fspath(path)) from None


def outlive(
    work: Callable[[Post], T],
    limit: float | None,
    to_others: signal.Signals | None,
    hear: Callable[[object], object] = lambda _: None,
) -> T:
    """What ``work`` returned or raised. It runs in a child that has this terminal, and ends by
    itself: after ``limit`` seconds, or when a signal asks for that. ``hear`` is called with each
    thing that it posts.

    Raises LeftBehind where it was to end and waits for a dead server. What it has started gets the
    signal ``to_others`` then.
    """
    end = None if limit is None else time.monotonic() + limit
    was_asked = False
    with held_back() as let_in:
        child = _Child.start(work, let_in, to_others)
        waits = _Waits(child.pid)
        try:
            while True:
                if select.select([child.messages], [], [], _SOON)[0]:
                    for answer in child.answers(hear):
                        return cast("T", answer)
                was_asked = _pass_on(child.pid) or was_asked
                is_over = end is not None and time.monotonic() >= end
                if (was_asked or is_over) and waits.for_server():
                    raise _left(child, f"a file system has not answered for {_STUCK:g} s")
        finally:
            if not child.was_killed and not child.is_over(_STUCK):
                child.end()
            os.close(child.messages)
            os.close(child.words)


def _pass_on(pid: int) -> bool:
    """Whether a signal has asked for the end meanwhile. The kernel's own, the terminal's, reaches
    the child, too.
    """
    was_asked = False
    while (told := signal.sigtimedwait(ENDING, 0)) is not None:
        if signal.getsignal(told.si_signo) == signal.SIG_IGN:
            continue
        was_asked = True
        if told.si_code <= 0:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, told.si_signo)
    return was_asked


_asking: set[int] = set()  # children of this process that are at work, or were left behind
_left_alone: set[int] = set()  # what those had started when they were ended


def asking() -> set[int]:
    """The processes that ask for this one, and what they started."""
    return {one for pid in _asking for one in (pid, *descendants(pid))} | _left_alone


class _Child:
    """The process that asks: its messages, and what it prints."""

    def __init__(
        self, pid: int, messages: int, words: int, to_others: signal.Signals | None
    ) -> None:
        self.pid, self.messages, self.words = pid, messages, words
        self.to_others = to_others
        self.is_gone = self.was_killed = False
        self.received = bytearray()

    @classmethod
    def start(
        cls,
        question: Callable[[Post], object],
        let_in: Callable[[], None] | None = None,
        to_others: signal.Signals | None = signal.SIGTERM,
    ) -> _Child:
        """It stands apart from our terminal; unless it is to ``let_in`` the signals that come from
        there. What it has started gets the signal ``to_others`` when it is killed.
        """
        messages, to_parent = os.pipe()
        words, printed = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        end_with_parent, command = ends_with_us(), os.getpid()

        def stand() -> None:
            end_with_parent()
            if let_in is None:
                _stand_apart(to_parent, printed)
            else:
                listen_for(command)
                let_in()

        # Signals that end the command reach the child once it does what they do by default.
        with held_back():
            pid = os.fork()
            if pid == 0:
                _ask(question, stand, to_parent)
        os.close(to_parent)
        os.close(printed)
        _asking.add(pid)
        return cls(pid, messages, words, to_others)

    def read(self) -> Iterator[tuple[str, object]]:
        """What it has sent meanwhile. Raises EOFError behind the last."""
        part = os.read(self.messages, 1 << 20)
        if not part:
            raise EOFError
        self.received += part
        while len(self.received) >= _LENGTH:
            end = _LENGTH + int.from_bytes(self.received[:_LENGTH], "little")
            if len(self.received) < end:
                break
            message: tuple[str, object] = pickle.loads(self.received[_LENGTH:end])
            del self.received[:end]
            yield message

    def answers(self, hear: Callable[[object], object]) -> Iterator[object]:
        """Its answer, if that has come. Raises what it raised, LeftBehind if it ended without."""
        try:
            for kind, what in self.read():
                if kind == "answer":
                    yield what
                elif kind == "failure":
                    assert isinstance(what, BaseException)
                    raise what
                elif kind == "openers":
                    _left_alone.update(cast("list[int]", what))
                else:
                    hear(what)
        except EOFError:
            raise _ended(self) from None

    def relay(self) -> bool:
        """Prints what it printed (a message of the engine that failed); whether more may come."""
        part = os.read(self.words, 1 << 16)
        with contextlib.suppress(OSError):
            # The engine's message may hold names of the patient's.
            sys.stderr.write(visible(part.decode("utf-8", "replace"), "\n\t"))
            sys.stderr.flush()
        return bool(part)

    def end(self) -> None:
        """Ends it, if it is still there, and what it started. Never waits long."""
        if self.was_killed or self.is_over(0.0):
            return
        self.was_killed = True
        # Helpers let go of the threads that they step by SIGTERM; no other signal may end those.
        for one in descended(self.pid):
            _left_alone.add(one.pid)  # one that a dead file system holds becomes ours
            if self.to_others is not None:
                with contextlib.suppress(OSError):
                    one.send(self.to_others)
        os.kill(self.pid, signal.SIGKILL)
        self.is_over(_ENDS)

    def is_over(self, patience: float) -> bool:
        """Whether it has ended by then."""
        end = time.monotonic() + patience
        while not self.is_gone:
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(self.pid, os.WNOHANG) == (0, 0):
                    if time.monotonic() >= end:
                        return False
                    time.sleep(0.002)
                    continue
            self.is_gone = True
        _asking.discard(self.pid)
        return True


def _answer(child: _Child, limit: float, hear: Callable[[object], object]) -> object:
    end = time.monotonic() + limit + _GRACE
    waits = _Waits(child.pid)
    open_ends = [child.messages, child.words]
    while True:
        now = time.monotonic()
        ready, _, _ = select.select(open_ends, [], [], max(0.0, min(_TICK, end - now)))
        if child.words in ready and not child.relay():
            open_ends.remove(child.words)
        if child.messages in ready:
            for answer in child.answers(hear):
                return answer
        if waits.for_server():
            raise _left(child, f"a file system has not answered for {_STUCK:g} s")
        if time.monotonic() >= end:
            raise _left(child, f"the time limit of {limit:g} s was over")


def _ended(child: _Child) -> LeftBehind:
    return LeftBehind("the process that asked has ended", f"it was process {child.pid}")


def _left(child: _Child, because: str) -> LeftBehind:
    """What the child did at last; it is ended, where that can be."""
    where = f"process {child.pid} of flagfinder, which asked, {_doing(child.pid)}"
    child.end()
    # On a busy machine it may take its time.
    if not child.is_gone and any(task.state == "D" for task in tasks(child.pid)):
        where += "; it can't be ended, and was left behind"
    return LeftBehind(because, where)


class Task(NamedTuple):
    """A thread. ``place``: the function of the kernel that it sleeps in; ``sleeps``: how
    often it went to sleep by now.
    """

    pid: int
    tid: int
    place: str
    state: str
    sleeps: str


def tasks(pid: int) -> Iterator[Task]:
    """The threads of a process that are there."""
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError, KeyError):
                place = (task / "wchan").read_text(encoding="utf-8", errors="replace")
                lines = (task / "status").read_text(encoding="utf-8", errors="replace").splitlines()
                status = {name: value for name, _, value in (x.partition(":") for x in lines)}
                sleeps = status["voluntary_ctxt_switches"]
                yield Task(pid, int(task.name), place, status["State"].strip()[0], sleeps)


class _Waits:
    """Whether a thread of the child waits for the answer of a file system's server for long."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.since: dict[Task, float] = {}
        self.looked = 0.0

    def for_server(self) -> bool:
        now = time.monotonic()
        if now - self.looked < _TICK:
            return False
        self.looked = now
        # Whoever got an answer meanwhile has gone to sleep once more.
        waiting = [task for task in tasks(self.pid) if task.place.startswith(_OF_SERVERS)]
        self.since = {task: self.since.get(task, now) for task in waiting}
        return any(now - since >= _STUCK for since in self.since.values())


def _doing(pid: int) -> str:
    """What the child does: its thread that can't be interrupted, or waits for a server."""
    for task in tasks(pid):
        if task.state == "D" or task.place.startswith(_OF_SERVERS):
            does = _core.at_a_glance(pid, task.tid) or "it has ended since"
            return f"sits in a call of the kernel: {does}"
    return "was still at work"


def _ask(question: Callable[[Post], object], stand: Callable[[], None], messages: int) -> NoReturn:
    """What the child does."""
    try:

        def post(kind: str, what: object) -> None:
            content = pickle.dumps((kind, what))
            content = len(content).to_bytes(_LENGTH, "little") + content
            while content:
                content = content[os.write(messages, content) :]

        try:
            stand()
            _asking.clear()
            try:
                answer = question(lambda what: post("post", what))
            finally:
                # A signal that both the terminal and the command send must not cost the answer.
                signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        except BaseException as error:
            post("openers", _core.file_openers())
            post("failure", _sendable(error))
        else:
            post("openers", _core.file_openers())
            post("answer", answer)
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        _core.end_file_openers()
        os._exit(0)


def _stand_apart(messages: int, printed: int) -> None:
    os.setsid()  # out of reach of Ctrl-C: the command ends it
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # Who reads the command's output waits until all have closed it.
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for entry in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):
            if int(entry) not in (1, 2, messages) and _is_read_by_others(int(entry)):
                os.close(int(entry))


def _is_read_by_others(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    is_channel = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISCHR(mode)
    access = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
    return is_channel and access != os.O_RDONLY


def _sendable(error: BaseException) -> BaseException:
    """The error, with where it came from as a note."""
    import traceback  # noqa: PLC0415

    # As add_note of Python 3.11 does.
    noted = [*getattr(error, "__notes__", ()), "".join(traceback.format_exception(error))]
    error.__dict__["__notes__"] = noted
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


AnyFields = TypeVar("AnyFields", "SpinFields", "WhyFields")


def report_apart(
    question: Callable[[Callable[[str], object], Told], AnyFields],
    limit: float,
    told: Told | None,
    meanwhile: Callable[[], object],
) -> AnyFields:
    """A report from ``question``, which is given what hears JSON of the report so far, and what
    hears which threads are looked at. Where it gets no answer, the report so far. ``meanwhile``:
    what shows it may be imported, which takes as long as a short look.
    """
    so_far: list[str] = []

    def hear(what: object) -> None:
        if isinstance(what, str):
            so_far[:] = [what]
        elif told is not None:
            told(*cast("tuple[int, list[int]]", what))

    def asked(post: Post) -> AnyFields:
        return question(post, lambda threads, stepped: post((threads, stepped)))

    try:
        return ask_apart(asked, limit, hear, meanwhile)
    except LeftBehind as left:
        if not so_far:
            raise
        raw: AnyFields = json.loads(so_far[0])
        not_asked(raw, left.because, left.untold)
        return raw
