# SPDX-License-Identifier: MIT
"""What .ci/test-wheel runs inside a bare system, which has the folder /test: installs flagfinder in
one way, and uses it.

    python3 inside.py root|user|pipx|uv|zipapp|deb|kernel

`kernel` is as `root`, for what depends on the kernel.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

TEST = Path("/test")
WHEELS = f"--find-links={TEST}/wheels"
COMPILERS = ("cc", "gcc", "clang", "c++", "g++", "rustc", "cargo", "cmake", "make", "ld", "as")
PIP = ("python3", "-m", "pip", "install", "--quiet", "--no-index", WHEELS)
USER, HOME = 1000, "/home/user"
SECONDS = 300.0


class Failure(Exception):
    """Something is not as it should be."""


class System:
    """The installed flagfinder, and who uses it."""

    def __init__(self, way: str) -> None:
        self.way = way
        self.is_root = way in ("root", "zipapp", "deb", "kernel")
        self.command = "flagfinder.pyz" if way == "zipapp" else "flagfinder"
        # What starts flagfinder as the user, with rights that others do not have.
        self.rights: tuple[str, ...] = ()
        # Older pips don't know the options of these names.
        self.env = os.environ | {"PIP_BREAK_SYSTEM_PACKAGES": "1", "PIP_ROOT_USER_ACTION": "ignore"}
        if not self.is_root:
            Path(HOME).mkdir()
            os.chown(HOME, USER, USER)
            self.env |= {"HOME": HOME, "PATH": f"{HOME}/.local/bin:{self.env['PATH']}"}
            self.env |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": f"{TEST}/wheels"}

    def start(self, *words: str | Path, **how: Any) -> subprocess.Popen[str]:
        """A program of the user's."""
        who: dict[str, Any] = {}
        if words[0] == self.command and self.rights:
            words = (*self.rights, *words)
        elif not self.is_root:
            who = {"user": USER, "group": USER, "extra_groups": []}
        command = [os.fspath(word) for word in words]
        return subprocess.Popen(command, env=self.env, cwd="/tmp", text=True, **who, **how)

    def run(self, *words: str | Path, status: int | None = 0) -> str:
        """All that it prints. ``status``: None may be any."""
        process = self.start(*words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            printed, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise Failure(f"{words} has not ended after {SECONDS} s") from None
        if status is not None and process.returncode != status:
            raise Failure(f"{words} ended with {process.returncode}:\n{printed}")
        return printed

    def install(self) -> None:
        match self.way:
            case "root" | "kernel":
                self.run(*PIP, "flagfinder")
            case "user":
                self.run(*PIP, "--user", "flagfinder")
            case "pipx":
                self.run("pipx", "install", "flagfinder")
            case "uv":
                uv = ("uv", "tool", "install", "--python", "/usr/bin/python3", "--no-index", WHEELS)
                self.run(*uv, "flagfinder")
            case "zipapp":
                shutil.copy(TEST / "flagfinder.pyz", "/usr/local/bin")
            case "deb":
                self.run("dpkg", "--install", TEST / "flagfinder.deb")

    @contextmanager
    def hung(self, *words: str | Path, **how: Any) -> Iterator[subprocess.Popen[str]]:
        """A program that has come to hang."""
        how = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, **how}
        with self.start(*words, **how) as process:
            try:
                time.sleep(0.5)
                while not has_come_to_wait(process.pid):
                    time.sleep(0.5)
                time.sleep(0.5)
                yield process
            finally:
                process.kill()

    def why(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        """The root of the report, and the ``story``."""
        # An emulated machine is so slow that copies do not come to their end: links are assumed.
        status = None if self.way == "kernel" else 0
        text = self.run(self.command, "why", str(process.pid), "--json", status=status)
        report: dict[str, Any] = json.loads(text[text.index("{") :])
        return {**report["root"], "story": " ".join(report["story"])}


def has_come_to_wait(pid: int) -> bool:
    """Whether its threads sleep; of several, one may poll. On a busy machine that takes a while."""
    files = Path(f"/proc/{pid}/task").glob("*/stat")
    sleeps = [file.read_text().rpartition(")")[2].split()[0] == "S" for file in files]
    return sleeps.count(False) <= (len(sleeps) > 1)


def expect(printed: str, *parts: str) -> None:
    for part in parts:
        if part not in printed:
            raise Failure(f"no {part!r} in:\n{printed}")


def demo(system: System) -> None:
    """What `make demo` shows."""
    system.run("mkdir", "/tmp/demo")
    for name in ("histogram", "libgomp.so.1"):
        system.run("cp", TEST / "demo" / name, "/tmp/demo")
    printed = system.run("sh", TEST / "demo/run.sh", "/tmp/demo")
    expect(printed, "data flag:", "libgomp.so.1+0x", "written by normal run", "silent.fifo")
    expect(printed, "the condition was met" if system.is_root else "watching needs root")


def hangs(system: System) -> None:
    """In several languages."""
    with system.hung("python3", TEST / "programs/deadlock.py") as process:
        root = system.why(process)
        if root["kind"] != "deadlock" or root["at"]["function"] != "takes":
            raise Failure(f"of deadlock.py: {root}")
    # A user sees that end of a pipe which is the user's.
    with system.start("sleep", "600", stdout=subprocess.PIPE) as giver:
        with system.hung(TEST / "programs/polls", stdin=giver.stdout) as process:
            root = system.why(process)
            expect(root["story"], "waits for ready (polls+0x", "read on fd 0", "sleep")
        giver.kill()
    system.run("mkfifo", "/tmp/fifo")
    with system.hung("sh", "-c", "read line </tmp/fifo") as process:
        root = system.why(process)
        if root["kind"] != "input" or "/tmp/fifo" not in root["what"]:
            raise Failure(f"of a shell: {root}")
    printed = system.run(
        system.command, "guard", "--after", "1", "--", TEST / "programs/deadlock", status=124
    )
    expect(printed, "deadlock: thread", "owed by thread")


def kernel_s(system: System) -> None:
    """What the kernel records; a user has no more rights for it than these two."""
    if not system.is_root:
        names, user = "-all,+cap_39,+cap_38", str(USER)
        limits = ("--inh-caps", names, "--ambient-caps", names, "--bounding-set", names)
        system.rights = ("setpriv", "--reuid", user, "--regid", user, "--clear-groups", *limits)
    system.run("flagfinder", "events", "record", "-o", "/tmp/run.events", "--", "sleep", "0.3")
    # It is known in which context a wake came.
    expect(system.run("flagfinder", "events", "dump", "/tmp/run.events"), " task", " timeout")
    system.run("flagfinder", "graph", "build", "/tmp/run.events", "-o", "/tmp/run.graph")
    # Each program that any option loads.
    options = "--all --syscalls target --network --stacks library --stack-copy 8K --mark-on-hang 2"
    script = "import time; time.sleep(0.3)"
    record = ("flagfinder", "events", "record", "-o", "/tmp/all.events", *options.split())
    print(system.run(*record, "--", "python3", "-c", script), end="", flush=True)
    expect(system.run("flagfinder", "events", "top", "--", "sleep", "0.3"), "sleep")
    with system.hung(TEST / "programs/polls") as process:
        words = (
            "watch",
            str(process.pid),
            "polls",
            "ready",
            "--until",
            "write",
            "--duration",
            "60",
        )
        watching = system.start("flagfinder", *words, stdout=subprocess.PIPE)
        assert watching.stdout is not None and process.stdin is not None
        expect(watching.stdout.readline(), "watching")
        process.stdin.write("\n")
        process.stdin.flush()
        expect(watching.communicate(timeout=SECONDS)[0], "write  0x0 -> 0x1")


def main(way: str) -> None:
    if there := [name for name in COMPILERS if shutil.which(name)]:
        raise Failure(f"this system has {there}")
    system = System(way)
    if way == "uv":
        subprocess.run([*PIP, "uv"], env=system.env, check=True)
    began = time.monotonic()
    system.install()
    installed = time.monotonic() - began
    with system.hung(TEST / "programs/deadlock") as process:
        began = time.monotonic()
        root = system.why(process)
        answered = time.monotonic() - began
    if root["kind"] != "deadlock":
        raise Failure(f"of deadlock: {root}")
    print(f"  install {installed:.1f} s, first answer {answered:.2f} s", flush=True)
    expect(system.run(system.command, "--version"), "flagfinder 0.")
    if way in ("root", "user", "zipapp", "deb", "kernel"):
        hangs(system)
    if way == "kernel":
        kernel_s(system)
        print("  hangs in C, C++, Python and sh, guard, watch, events: as expected", flush=True)
    if way in ("root", "user", "deb"):
        printed = system.run("flagfinder", "doctor", status=0 if system.is_root else 1)
        expect(printed, "programs see under it what they see without", "compiled")
        demo(system)
        kernel_s(system)
        print(
            "  doctor, hangs in C, C++, Python and sh, guard, the demo, watch, events: as expected",
            flush=True,
        )


try:
    main(sys.argv[1])
except Failure as failure:
    sys.exit(f"  {failure}")
