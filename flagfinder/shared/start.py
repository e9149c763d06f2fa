# SPDX-License-Identifier: MIT
"""The first code of the ``flagfinder`` command: what is set for the program to run must not act on
this one.

A library to preload, an allocator's setting, a path of Python modules or OpenSSL's configuration
would change the recorder, hang it or stop it. Where such a variable is set, the command runs once
more without it, and keeps the environment that it was given for the program. This module imports
nothing that reads any of them.

Blind spot: what acts on every program from its first instruction (LD_PRELOAD) acts on this one
until then.
"""

# ruff: noqa: PTH100, PTH119, PTH120, PTH123  # pathlib imports much
from __future__ import annotations

import os
import signal
import sys

_HANDED_ON = "FLAGFINDER_ENVIRONMENT"  # PROCESS:DESCRIPTOR, between the two runs of one command
_ACTING = (
    "LD_",
    "MALLOC_",
    "GLIBC_TUNABLES",
    "GCONV_PATH",
    "LOCPATH",
    "PYTHON",
    "OPENSSL_",
    "RUST_",
)
# These have no say in what Python does beyond its output and its files, or it could not have
# started without them.
_HARMLESS = frozenset(
    {
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONHASHSEED",
        "PYTHONHOME",
        "PYTHONIOENCODING",
        "PYTHONPYCACHEPREFIX",
        "PYTHONSAFEPATH",
        "PYTHONUNBUFFERED",
        "PYTHONUTF8",
        "RUST_BACKTRACE",
    }
)

# What Python 3.11 does with -P. Found in the words of this process, `-m flagfinder` is the command.
_WITHOUT_P = """\
import runpy, sys
del sys.path[0], sys.argv[0]
if sys.argv[0] == "-m":
    module = sys.argv.pop(1)
    runpy.run_module(module, run_name="__main__", alter_sys=True)
else:
    runpy.run_path(sys.argv[0], run_name="__main__")
"""

kept: bytes | None = None
"""The environment that the command was given, entries that each end with a NUL; None: it is that of
this process.
"""


_is_deaf = False  # Ctrl-C raises no KeyboardInterrupt yet


def shield() -> None:
    """Runs this command again, in this process, without the variables that would act on it."""
    global kept  # noqa: PLW0603
    process, _, descriptor = os.environ.pop(_HANDED_ON, "").partition(":")
    if process == str(os.getpid()):
        os.lseek(int(descriptor), 0, os.SEEK_SET)
        with open(int(descriptor), "rb") as file:
            kept = file.read()
        return
    acting = [name for name in os.environ if name.startswith(_ACTING) and name not in _HARMLESS]
    needed = _needed(acting) if acting else {}
    if all(needed.get(name) == os.environ[name] for name in acting):
        return
    memory = os.memfd_create("flagfinder-environment", 0)
    os.write(memory, given())
    clean = {name: value for name, value in os.environ.items() if name not in acting} | needed
    clean[_HANDED_ON] = f"{os.getpid()}:{memory}"
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], clean)


def python(*words: str) -> list[str]:
    """The command by which this Python runs a module (``-m``, its name) or a file, with words; the
    working folder, which may be anybody's, adds no modules.
    """
    if sys.version_info >= (3, 11):
        return [sys.executable, "-P", *words]
    return [sys.executable, "-c", _WITHOUT_P, *words]


def given() -> bytes:
    """What this process was started with, entries that each end with a NUL, as the kernel keeps
    them.
    """
    with open("/proc/self/environ", "rb") as file:
        return file.read()


def _needed(acting: list[str]) -> dict[str, str]:
    """Without what led to this module, or to Python's own library, the command could not run
    again.
    """
    needed = {}
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    for name in acting:
        entries = os.environ[name].split(":")
        if name == "PYTHONPATH" and any(os.path.abspath(path) == here for path in entries):
            needed[name] = os.environ[name]
        if name == "LD_LIBRARY_PATH":
            with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
                libraries = {
                    line.split(maxsplit=5)[-1].strip() for line in file if "/libpython" in line
                }
            folders = {os.path.dirname(path) for path in libraries}
            used = [path for path in entries if os.path.realpath(path) in folders]
            if used:
                needed[name] = ":".join(used)
    return needed


def open_streams() -> None:
    """Opens what the caller closed of stdin, stdout and stderr: else the next file that is opened
    gets its number, and what is printed lands in that file. To write to such a stdout fails, as it
    should. Programs that are started find the descriptors closed, as they were.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR if name == "stderr" else os.O_RDONLY)
            stream = open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)


def _is_command() -> bool:
    """Whether this process is the ``flagfinder`` command, by its script, as one file or by ``python
    -m flagfinder``.
    """
    if sys.argv[:1] == ["-m"]:
        return ("-m", "flagfinder") in zip(sys.orig_argv, sys.orig_argv[1:], strict=False)
    return bool(sys.argv) and os.path.basename(sys.argv[0]) in ("flagfinder", "flagfinder.pyz")


def hear_interrupts() -> None:
    """From now on Ctrl-C raises KeyboardInterrupt again."""
    global _is_deaf  # noqa: PLW0603
    if _is_deaf:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _is_deaf = False


# The package imports this module before any other.
if _is_command():
    open_streams()
    shield()
    # Where it is ignored, as whoever starts us may have it, the kernel tells nobody how a child
    # ended, and gives its number away at once. Programs that are started get it as timeout(1)'s do.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # While the command reads its own modules, no code can report Ctrl-C: the command just ends.
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        _is_deaf = True
