# SPDX-License-Identifier: MIT
"""Programs that generate code while they run, told before they are started: the tracer needs
another setting then.

In: a command line. Out: which word of it starts a known language runtime with a compiler of its
own. The fact is the executable's dynamic section: the libraries it needs, the symbols it shares
with them.

Blind spots: a runtime that a script starts, one that is none of these, and compilers brought in
later (dlopen). ``record --generated-code yes`` is for those.
"""

from __future__ import annotations

import mmap
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path

from flagfinder.shared.elf import DYNAMIC, LOAD, SCRIPT_DEPTH, interpreter, segments

# Beginnings of names in the dynamic section.
_MARKS = {
    b"libjli.so": "a Java virtual machine",
    b"libjvm.so": "a Java virtual machine",
    b"JNI_CreateJavaVM": "a Java virtual machine",
    b"_ZN2v87Isolate": "V8",
    b"libv8": "V8",
    b"libnode.so": "V8",
    b"luaJIT_setmode": "LuaJIT",
    b"libluajit": "LuaJIT",
    b"libpypy": "PyPy",
    b"pypy_main_startup": "PyPy",
    b"libcoreclr.so": "the .NET runtime",
    b"hostfxr_main": "the .NET runtime",
    b"libmonosgen": "Mono",
    b"mono_jit_init": "Mono",
    b"libmozjs": "SpiderMonkey",
    b"libjavascriptcoregtk": "JavaScriptCore",
    b"libQt5WebEngineCore": "V8",
    b"libQt6WebEngineCore": "V8",
}
# What starts .NET programs finds the runtime by this name, when it runs; it is a small file.
_DOTNET = b"libhostfxr.so"
_SMALL = 1 << 20
_ELF = b"\x7fELF\x02\x01"
_STRTAB, _STRSZ = 5, 10


def code_generator(command: Sequence[str], depth: int = SCRIPT_DEPTH) -> tuple[str, str] | None:
    """The first word that starts a runtime which generates code, and which; None if none does.

    Words count that are programs: in ``env A=1 java -jar x`` the third; of a script, those of its
    first line.
    """
    for word in command:
        path = shutil.which(word)
        if path is None:
            continue
        runtime = runtime_of(Path(path))
        if runtime:
            return word, runtime
        if depth > 0 and (found := code_generator(interpreter(Path(path)), depth - 1)):
            return found
    return None


def runtime_of(program: Path) -> str | None:
    """The runtime in an executable; None if there is none, or it is no ELF file of 64 bits."""
    try:
        with (
            program.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            if data[:6] != _ELF:
                return None
            if len(data) < _SMALL and data.find(_DOTNET) >= 0:
                return "the .NET runtime"
            names = b"\0" + _dynamic_names(data)
            return next(
                (runtime for mark, runtime in _MARKS.items() if b"\0" + mark in names), None
            )
    except (OSError, ValueError, struct.error):
        return None  # unreadable, empty or damaged: what starts it will say so


def _dynamic_names(data: mmap.mmap) -> bytes:
    """The string table of the dynamic section; empty for a static program."""
    headers = segments(data)
    dynamic = next((header for header in headers if header.kind == DYNAMIC), None)
    if dynamic is None:
        return b""
    content = data[dynamic.offset : dynamic.offset + dynamic.stored // 16 * 16]
    entries = dict(reversed(list(struct.iter_unpack("<QQ", content))))
    address = entries.get(_STRTAB, 0)
    for one in headers:
        if one.kind == LOAD and one.address <= address < one.address + one.stored:
            begin = one.offset + address - one.address
            return data[begin : begin + entries.get(_STRSZ, 0)]
    return b""
