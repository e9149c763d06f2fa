# SPDX-License-Identifier: MIT
"""One look at the Python stacks of a process, with py-spy: reads its memory, stops nothing, runs
nothing in it.

py-spy is a program of its own, so that memory read while it changes can do no harm here: at worst a
look fails. Of a process that a tracer has loaded it reads an image (``process_image``).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from flagfinder import _core
from flagfinder.interpreters.process_image import (
    MOST_BYTES,
    Live,
    Source,
    TooLargeError,
    write_image,
)
from flagfinder.interpreters.which import INTERPRETER, UnreadableError, mapped_files
from flagfinder.shared.helper import ends_with_us
from flagfinder.shared.places import PACKAGE
from flagfinder.shared.proc_lines import proc_lines
from flagfinder.shared.record import dataclass
from flagfinder.shared.typed import NotRequired, TypedDict

# struct pthread of the GNU C library on x86-64: the pointer to itself, and the thread's id.
_SELF, _TID = 0x10, 0x2D0
# Of py-spy: it maps an image and the interpreter's files, and what it reads is hostile.
_MEMORY = 4 * MOST_BYTES
_NOT_PYTHON = {"<shim>", "<trampoline>", "<interpreter trampoline>"}


class _Local(TypedDict):
    name: str
    repr: str | None
    addr: int


class _Frame(TypedDict):
    name: str
    filename: str
    line: int
    locals: NotRequired[list[_Local] | None]


class _Thread(TypedDict):
    """As py-spy prints it; what is not asked for here is left out."""

    thread_id: int
    os_thread_id: int | None
    owns_gil: NotRequired[bool]
    frames: list[_Frame]


@dataclass(frozen=True)
class SeenFrame:
    """A frame as one look saw it. ``locals``: name to (text, address of the object); a module's are
    not read.
    """

    function: str
    file: str
    line: int
    locals: Mapping[str, tuple[str, int]]

    @property
    def identity(self) -> tuple[str, str]:
        """What stays the same while the frame runs on."""
        return self.function, self.file


@dataclass(frozen=True)
class SeenStack:
    """The Python stack of a thread, outermost first, and whether it had the interpreter's lock."""

    frames: tuple[SeenFrame, ...]
    has_gil: bool


def find_py_spy() -> str:
    """The program's path: the one installed beside flagfinder, else from PATH. Raises
    UnreadableError.

    Root runs only the installed one: PATH may be another user's.
    """
    # Also those of a user's own packages, and of a folder that was made a file.
    for folder in (sysconfig.get_path("scripts"), PACKAGE / "../../../../bin", PACKAGE / "../bin"):
        beside = Path(os.path.normpath(folder), "py-spy")
        if beside.is_file():
            return str(beside)
    found = None if os.geteuid() == 0 else shutil.which("py-spy")
    if found is None:
        raise UnreadableError(
            f"py-spy is not installed beside flagfinder (`{sys.executable} -m pip install py-spy`)"
        )
    return found


def look(pid: int, *, timeout: float) -> dict[int, SeenStack]:
    """The stacks of all threads that run Python, by thread id. ``timeout`` in seconds. Raises
    UnreadableError.
    """
    loaded = loaded_by_another(pid)
    try:
        process = Live(pid)
        if not loaded:
            threads = _dump(["--pid", str(pid)], timeout)
        else:
            threads = _dump_image(process, loaded, timeout)
        return _stacks(threads, process, _tids(pid))
    except OSError as error:
        raise UnreadableError("the process has ended") from error


def look_at_core(core: _core.CoreMemory, *, timeout: float) -> dict[int, SeenStack]:
    """The same of a dead process. Raises UnreadableError."""
    code = dict.fromkeys(file for _, _, access, _, file in core.regions() if "x" in access)
    files = _interpreter(code)
    if not files:
        raise UnreadableError("its interpreter is not known")
    for file in files:  # a core may name any file
        try:
            os.close(_core.open_named(file))
        except OSError as error:
            raise UnreadableError(f"{file} can't be read: {error.strerror}") from error
    threads = _dump_image(core, files, timeout)
    return _stacks(threads, core, {tid: tid for tid in core.threads})


def _dump_image(process: Source, interpreter: Sequence[str], timeout: float) -> list[_Thread]:
    with _scratch("image") as image:
        try:
            write_image(process, interpreter, image)
        except TooLargeError as error:
            raise UnreadableError(str(error)) from error
        return _dump(["--core", f"/proc/{os.getpid()}/fd/{image.fileno()}"], timeout)


def _dump(which: Sequence[str], timeout: float) -> list[_Thread]:
    command = [find_py_spy(), "dump", "--nonblocking", "--json", "--locals", *which]
    status, output, complaint = _run(command, timeout)
    if status != 0:
        raise UnreadableError(_complaint(complaint.decode(errors="replace")))
    try:
        threads: list[_Thread] = json.loads(output)
    except ValueError as error:
        raise UnreadableError(f"py-spy's answer is not understood: {error}") from error
    return threads


def _stacks(
    threads: Sequence[_Thread], process: Source, tids: Mapping[int, int]
) -> dict[int, SeenStack]:
    try:
        stacks = [(_tid(process, thread, tids), _stack(thread)) for thread in threads]
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadableError(f"py-spy's answer is not understood: {error}") from error
    return {tid: stack for tid, stack in stacks if tid is not None and stack.frames}


def loaded_by_another(pid: int) -> list[str]:
    """The interpreter's files, its program first, where ``/proc/PID/exe`` names what loaded it: a
    tracer, or ``ld.so``.

    py-spy looks for the interpreter there, or in a mapped library (libpython).
    """
    try:
        program = str(Path(f"/proc/{pid}/exe").readlink())
        code = mapped_files(pid, executable=True)
    except OSError:
        return []
    files = _interpreter(code)
    return files if files and ".so" not in files[0] and program not in files else []


def _interpreter(code: Iterable[str]) -> list[str]:
    """Of files with code, those of an interpreter, its program first."""
    return sorted(filter(INTERPRETER.search, code), key=lambda file: ".so" in file)


def _run(command: Sequence[str], timeout: float) -> tuple[int, bytes, bytes]:
    """The exit status, and what it wrote.

    There are no pipes: the engine forks meanwhile, and its processes would hold their ends.
    """
    with _scratch("py-spy output") as output, _scratch("py-spy complaint") as complaint:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=complaint,
                close_fds=False,
                preexec_fn=ends_with_us(_MEMORY),  # noqa: PLW1509
            )
        except OSError as error:
            raise UnreadableError(f"py-spy can't be run: {error.strerror}") from error
        with process, os.fdopen(os.pidfd_open(process.pid), "rb", buffering=0) as ends:
            if not select.select([ends], [], [], timeout)[0]:
                process.kill()
                raise UnreadableError(f"py-spy gave no answer within {timeout:.1f} s")
            status = process.wait()
        output.seek(0)
        complaint.seek(0)
        return status, output.read(), complaint.read()


def _scratch(name: str) -> BinaryIO:
    return os.fdopen(os.memfd_create(name), "w+b")


def _complaint(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = next(
        (line for line in lines if line.startswith("Error: ")),
        lines[0] if lines else "py-spy failed",
    )
    return said.removeprefix("Error: ").rstrip(".")


def _stack(thread: _Thread) -> SeenStack:
    frames = [_frame(raw) for raw in reversed(thread["frames"]) if raw["name"] not in _NOT_PYTHON]
    return SeenStack(tuple(frames), bool(thread.get("owns_gil")))


def _frame(raw: _Frame) -> SeenFrame:
    seen = {
        item["name"]: (str(item.get("repr") or ""), int(item["addr"]))
        for item in raw.get("locals") or ()
    }
    return SeenFrame(raw["name"], raw["filename"], int(raw["line"]), seen)


def _tid(process: Source, thread: _Thread, tids: Mapping[int, int]) -> int | None:
    """The kernel's id, as it is outside a container.

    Before Python 3.11 the interpreter knows only the C library's own, which is an address.
    """
    tid = thread.get("os_thread_id")
    if tid is not None:
        return tids.get(int(tid))
    if len(set(tids.values())) == 1:
        return next(iter(tids.values()))
    address = int(thread["thread_id"])
    try:
        block = process.read(address, _TID + 4)
    except (OSError, OverflowError, ValueError):
        return None
    if len(block) < _TID + 4 or struct.unpack_from("<Q", block, _SELF)[0] != address:
        return None
    return tids.get(int(struct.unpack_from("<i", block, _TID)[0]))


def _tids(pid: int) -> dict[int, int]:
    """The threads' ids as seen here, by those and by the ones that the process itself sees (pid
    namespaces).
    """
    tids = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        tid = int(task.name)
        with contextlib.suppress(OSError):  # ended meanwhile
            lines = proc_lines(task / "status")
            inside = next((line.split()[-1] for line in lines if line.startswith("NSpid:")), tid)
            tids[int(inside)] = tid
            tids.setdefault(tid, tid)
    return tids
