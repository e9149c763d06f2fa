# SPDX-License-Identifier: MIT
"""``flagfinder why`` and ``flagfinder spin`` inside gdb, about the process or core that it debugs.

    (gdb) source .../flagfinder/report/debuggers/in_gdb_session.py
    (gdb) flagfinder why --stacks

Words and output are those of the command line, without the process. gdb holds every thread of the
process, and who is held tells nothing: so it lets the process go for the time of the look, and
takes it back. That is refused unless Ctrl-C or gdb itself stopped the process: from a breakpoint or
a step it would go on, and of a signal that gdb gives to it then it might die. Of a core the file is
asked that gdb has open.
"""

import shutil
import signal
import subprocess
from pathlib import Path

import gdb

OF_CORE = {"why": ("why", "--core"), "spin": ("core",)}  # by the verb
# Beside the packages among which this file was installed, else in PATH.
ENVIRONMENT = Path(__file__).resolve().parents[6:7]
INSTALLED = [folder / "bin" / "flagfinder" for folder in ENVIRONMENT]
PROGRAM = next((str(path) for path in INSTALLED if path.is_file()), None)
STOPS = (signal.SIGINT, signal.SIGSTOP)  # Ctrl-C, and what gdb stops threads with
ELF, CORE = b"\x7fELF", b"\4\0"  # how an ELF file begins, and its type, 16 bytes behind


def cores():
    """The core files that this gdb has open."""
    for path in {link.resolve() for link in Path("/proc/self/fd").iterdir()}:
        if not path.is_file():
            continue
        with path.open("rb") as file:
            head = file.read(18)
        if head[:4] == ELF and head[16:] == CORE:
            yield path


def stays(inferior):
    """Whether all threads stand where only gdb stopped them."""
    selected = gdb.selected_thread()
    try:
        for thread in inferior.threads():
            thread.switch()
            if int(gdb.parse_and_eval("$_siginfo.si_signo")) not in STOPS:
                return False
        return True
    except gdb.error:  # what stopped a thread can't be told
        return False
    finally:
        if selected is not None:
            selected.switch()


def ask(*words):
    found = PROGRAM or shutil.which("flagfinder") or "flagfinder"
    subprocess.run([found, *words])


class Flagfinder(gdb.Command):
    """flagfinder why|spin [OPTIONS]
    Says who keeps the process from going on, or what its threads poll. It goes on meanwhile."""

    def __init__(self):
        super().__init__("flagfinder", gdb.COMMAND_STACK)

    def invoke(self, text, _):
        verb, *options = gdb.string_to_argv(text) or ["why"]
        inferior = gdb.selected_inferior()
        pid = inferior.pid
        if verb not in OF_CORE:
            raise gdb.GdbError(f"flagfinder {verb}: here are {' and '.join(OF_CORE)}")
        connection = inferior.connection
        if connection is not None and connection.type == "core":
            found = [*cores()]
            if len(found) != 1:
                raise gdb.GdbError(f"{len(found)} core files are open")
            ask(*OF_CORE[verb], found[0], *options)
            return
        if not pid or connection is None or connection.type != "native":
            raise gdb.GdbError("There is neither a process of this machine nor a core")
        if not stays(inferior):
            raise gdb.GdbError(
                "It stopped at a breakpoint, after a step or for a signal, and would go on from "
                "there: continue till it hangs, then press Ctrl-C"
            )
        thread = gdb.selected_thread()
        selected = thread.ptid[1] if thread is not None else pid
        gdb.execute("detach", to_string=True)
        try:
            ask(verb, str(pid), *options)
        finally:
            gdb.execute(f"attach {pid}", to_string=True)
            for other in gdb.selected_inferior().threads():
                if other.ptid[1] == selected:
                    other.switch()


Flagfinder()
