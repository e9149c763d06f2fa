# SPDX-License-Identifier: MIT
"""How much memory a look takes, whatever the process or the core file is like."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from core_writer import CODE, EXECUTE, READ, WRITE, Stretch, Thread, core
from harness import FLAGFINDER, ROOT, assert_four_parts, compiled, needs_root, run, started
from peak import MIB, Ran, measured

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]
MOST = 512 * MIB
THREADS = 2000


def look(folder: Path, *words: object, **environment: str) -> Ran:
    """Runs a verb, which must come to its end and stay below the limit."""
    ran = measured([*FLAGFINDER, *words], folder, timeout=400, env=environment)
    assert ran.returncode in (0, 1, 65), ran.stderr
    assert ran.peak_bytes < MOST, f"{ran.peak_bytes / MIB:.0f} MiB"
    return ran


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = ROOT / "tests" / "live" / "programs" / "crowd.c"
    return compiled(tmp_path_factory.mktemp("crowd") / "crowd", source, "-Wall", "-Werror")


@pytest.mark.parametrize("way", ["condition", "pipe"])
def test_each_of_thousands_of_threads_may_be_kept_by_all_others(
    crowd: Path, tmp_path: Path, way: str
) -> None:
    with started([crowd, way, THREADS], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        ran = look(tmp_path, "why", process.pid)
        assert str(process.pid) in ran.stdout
        look(tmp_path, "spin", process.pid)


WALKER = """
#include <string.h>
#include <stdlib.h>
#include <stdio.h>
int main(void)
{
    size_t size = 400UL << 20;
    volatile unsigned char *memory = malloc(size);
    memset((void *)memory, 1, size);
    puts("ready");
    fflush(stdout);
    for (unsigned sum = 0;; )
        for (size_t at = 0; at < size; at += 4096)
            sum += memory[at];
}
"""


def test_a_thread_that_walks_through_much_memory_is_seen_in_its_copy(tmp_path: Path) -> None:
    """It is not stopped for that."""
    source = tmp_path / "walker.c"
    source.write_text(WALKER)
    program = compiled(tmp_path / "walker", source)
    with started([program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        ran = look(tmp_path, "spin", "--json", process.pid)
        (thread,) = json.loads(ran.stdout)["threads"]
    assert thread["via"] == "replica", thread
    assert thread["flags"] == []


LOADER = """
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
int main(int count, char **names)
{
    pthread_t thread;
    for (int at = 1; at < count; at++)
        pthread_create(&thread, 0, dlsym(dlopen(names[at], RTLD_NOW), "wait_in"), 0);
    puts("ready");
    fflush(stdout);
    pthread_join(thread, 0);
}
"""
LIBRARY = """
#include <unistd.h>
void *wait_in(void *unused)
{
    for (;;)
        pause();
}
"""


def test_packed_debug_information_of_many_libraries_is_read_within_a_limit(tmp_path: Path) -> None:
    """Each file is small, and unpacks to many times its size."""
    block = b"".join(bytes((byte,)) + b"a" * 63 for byte in os.urandom(MIB // 64))
    (tmp_path / "text").write_bytes(block * (MOST // 4 // MIB))
    source = tmp_path / "library.c"
    source.write_text(LIBRARY)
    libraries = []
    for number in range(12):
        library = compiled(tmp_path / f"l{number}.so", source, "-g", "-shared", "-fPIC")
        for change in (
            ["--update-section", f".debug_str={tmp_path / 'text'}"],
            ["--compress-debug-sections=zlib"],
        ):
            ran = run(["objcopy", *change, library], timeout=120)
            assert ran.returncode == 0, ran.stderr
        assert library.stat().st_size < 8 * MIB
        libraries.append(library)
    source = tmp_path / "loader.c"
    source.write_text(LOADER)
    program = compiled(tmp_path / "loader", source, "-rdynamic")
    with started([program, *libraries], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        for verb in ("spin", "why"):
            asked = measured([*FLAGFINDER, verb, process.pid], tmp_path, timeout=400)
            assert asked.peak_bytes < 1024 * MIB, f"{asked.peak_bytes / MIB:.0f} MiB"


# mov rax,[rbx]; or mov [rbx],rax; then add rbx,0x1000; jmp back
STEPS = b"\x48\x81\xc3\x00\x10\x00\x00\xeb\xf4"
WALKS = {"reads": b"\x48\x8b\x03" + STEPS, "writes": b"\x48\x89\x03" + STEPS}


@pytest.mark.parametrize("way", WALKS)
def test_a_copy_that_walks_through_a_huge_mapping_halts(tmp_path: Path, way: str) -> None:
    huge = 0x10_0000_0000
    memory = [
        Stretch(CODE, 4096, READ | EXECUTE, WALKS[way].ljust(4096, b"\xcc")),
        Stretch(huge, 1 << 45, READ | WRITE),
    ]
    path = tmp_path / "core"
    path.write_bytes(core([Thread(7, {"rbx": huge, "rsp": huge + 2048})], memory))
    ran = look(tmp_path, "core", "--budget", "30", path)
    assert "the copy touched more than 256 MiB" in ran.stdout


def test_code_without_an_end_is_followed_up_to_a_number_of_instructions(tmp_path: Path) -> None:
    # Zeroes are `add [rax],al`, again and again.
    data = 0x10_0000_0000
    memory = [Stretch(CODE, 1 << 30, READ | EXECUTE), Stretch(data, MIB, READ | WRITE)]
    path = tmp_path / "core"
    path.write_bytes(core([Thread(7, {"rax": data, "rsp": data + 2048})], memory))
    look(tmp_path, "core", "--budget", "60", path)


def test_a_core_of_more_threads_than_make_sense(tmp_path: Path) -> None:
    count = 3000
    memory = [Stretch(CODE, 4096, READ | EXECUTE, b"\xcc" * 4096)]
    path = tmp_path / "core"
    path.write_bytes(core([Thread(7 + number) for number in range(count)], memory))
    ran = look(tmp_path, "core", path)
    told = "2000 more threads repeat something and were not looked at; --thread TID looks at one"
    assert told in " ".join(ran.stdout.split())


def test_a_core_whose_notes_name_more_files_than_make_sense(tmp_path: Path) -> None:
    files = [(0x1000_0000_0000 + 8192 * n, 4096, f"/nowhere/{n}") for n in range(400_000)]
    memory = [Stretch(CODE, 4096, READ | EXECUTE, b"\xeb\xfe".ljust(4096, b"\xcc"))]
    path = tmp_path / "core"
    path.write_bytes(core([Thread(7)], memory, files))
    told = " ".join(look(tmp_path, "core", path).stdout.split())
    assert "the process maps more files than 16384: no more were asked for" in told, told
    assert "computes: thread 7" in look(tmp_path, "why", "--core", path).stdout


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 160 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = run(["mount", "-t", "tmpfs", "-o", "size=160m", "none", folder], timeout=30)
    assert mount.returncode == 0, mount.stderr
    try:
        yield folder
    finally:
        run(["umount", folder], timeout=30)


def held(folder: Path) -> int:
    """Bytes that are in use there."""
    disk = os.statvfs(folder)
    return (disk.f_blocks - disk.f_bfree) * disk.f_frsize


def packed(path: Path, parts: Iterator[bytes]) -> Path:
    with path.open("wb") as file, zstandard.ZstdCompressor().stream_writer(file) as writer:
        for part in parts:
            writer.write(part)
    return path


@needs_root("mounts a file system")
def test_a_packed_core_does_not_fill_the_disk(tmp_path: Path, small_disk: Path) -> None:
    block = os.urandom(MIB)
    path = packed(tmp_path / "core.zst", (block for _ in range(200)))
    assert path.stat().st_size < 8 * MIB
    ran = look(tmp_path, "core", path, TMPDIR=str(small_disk))
    assert ran.returncode == 65
    assert_four_parts(ran.stderr, "some of it is left to others")
    assert held(small_disk) == 0


@needs_root("mounts a file system")
def test_holes_of_a_packed_core_take_no_room(tmp_path: Path, small_disk: Path) -> None:
    zeroes = bytes(MIB)
    path = packed(tmp_path / "core.zst", (zeroes for _ in range(1024)))
    ran = look(tmp_path, "core", path, TMPDIR=str(small_disk))
    assert "is no core file" in ran.stderr, "it was unpacked, and looked at"
