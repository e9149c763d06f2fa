# SPDX-License-Identifier: MIT
"""`why`, `spin`, `watch` and `events` on processes of containers, from outside and from inside.

A container has this machine's files, but /tmp, /proc and the programs' folder of its own: what a
process calls /tmp/app lies elsewhere outside.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from harness import (
    FLAGFINDER,
    ROOT,
    children,
    command_into,
    compiled,
    flagfinder,
    live_or_skip,
    run,
    started,
)
from watching import Target, in_function, watching

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]
APP = Path("/tmp/app")
# What `docker run --cap-add` gives for all verbs.
CAPABILITIES = ["CAP_SYS_PTRACE", "CAP_BPF", "CAP_PERFMON"]
HOLDS = ["sh", "-c", "echo; exec sleep 3600"]


class Container(NamedTuple):
    """``inside``: the beginning of a command in it; ``holder``: its first process, as seen here;
    ``shared``: the folder that it calls APP.
    """

    inside: list[str]
    holder: int
    shared: Path

    def outside(self, inner: int) -> int:
        """The id here of a process."""
        space = Path(f"/proc/{self.holder}/ns/pid").readlink()
        for process in Path("/proc").glob("[0-9]*"):
            try:
                status = (process / "status").read_text()
                is_here = (process / "ns/pid").readlink() == space
            except OSError:
                continue
            if is_here and re.search(rf"^NSpid:.*\t{inner}$", status, re.MULTILINE):
                return int(process.name)
        raise AssertionError(f"no process {inner}")


@contextmanager
def bubble(shared: Path) -> Iterator[Container]:
    """Bubblewrap, as desktops' sandboxes use it."""
    spaces = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net"]
    files = [
        "--bind",
        "/",
        "/",
        "--dev",
        "/dev",
        "--proc",
        "/proc",
        "--tmpfs",
        "/tmp",
        *["--bind", ROOT, ROOT],
        *["--bind", shared, APP],
    ]
    words = ["bwrap", *spaces, *files, "--as-pid-1", *HOLDS]
    with started(words, stdout=subprocess.PIPE) as wrapper:
        assert wrapper.stdout is not None and wrapper.stdout.readline()
        [first] = children(wrapper.pid)
        enter = ["nsenter", f"--target={first}", "--pid", "--mount", "--ipc", "--uts", "--net"]
        yield Container([*enter, "--"], first, shared)


@contextmanager
def oci(shared: Path) -> Iterator[Container]:
    """An OCI container by runc, as Docker and containerd start them."""
    bundle, name = shared / "bundle", f"flagfinder-{os.getpid()}"
    root = bundle / "root"
    root.mkdir(parents=True)
    run(["runc", "spec", "--bundle", bundle], timeout=60)
    spec: dict[str, Any] = json.loads((bundle / "config.json").read_text())
    spec["process"] |= {"terminal": False, "args": HOLDS}
    spec["process"]["env"] = [f"{name}={value}" for name, value in os.environ.items()]
    spec["process"]["capabilities"] = dict.fromkeys(spec["process"]["capabilities"], CAPABILITIES)
    spec["root"] = {"path": str(root), "readonly": False}
    own = {mount["destination"] for mount in spec["mounts"]} | {"/tmp", "/run"}
    for folder in Path("/").iterdir():
        if folder.is_symlink():
            (root / folder.name).symlink_to(folder.readlink())
        elif folder.is_dir() and str(folder) not in own:
            spec["mounts"].append(_bound(folder, folder))
    spec["mounts"].append({"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"})
    spec["mounts"] += [_bound(ROOT, ROOT), _bound(shared, APP)]
    (bundle / "config.json").write_text(json.dumps(spec))
    with started(["runc", "run", "--bundle", bundle, name], stdout=subprocess.PIPE) as runner:
        assert runner.stdout is not None
        if not runner.stdout.readline():
            live_or_skip("runc starts no container here")
        try:
            state = json.loads(run(["runc", "state", name], timeout=60).stdout)
            yield Container(["runc", "exec", name], state["pid"], shared)
        finally:
            run(["runc", "delete", "--force", name], timeout=60)


def _bound(source: Path, place: Path) -> dict[str, Any]:
    words = {"source": str(source), "destination": str(place)}
    return {**words, "type": "bind", "options": ["rbind", "rw"]}


@pytest.fixture(params=[bubble, oci], ids=["bubblewrap", "runc"], scope="module")
def container(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Container]:
    tool = "bwrap" if request.param is bubble else "runc"
    if os.geteuid() != 0 or shutil.which(tool) is None:
        live_or_skip(f"containers need root and {tool}")
    shared = tmp_path_factory.mktemp("container")
    compiled(shared / "writers", ROOT / "tests/live/programs/writers.c")
    compiled(shared / "deadlock", ROOT / "tests/wheel/deadlock.c")
    with request.param(shared) as made:
        yield made


def program(container: Container, *words: str) -> Target:
    """`writers`, in there."""
    first, *rest = container.inside
    return Target(Path(first), *rest, f"{APP}/writers", *words)


def both(container: Container, inner: int) -> dict[str, tuple[list[str], int]]:
    """Of each side how a command begins there, and the id of the process."""
    return {"inside": (container.inside, inner), "outside": ([], container.outside(inner))}


def test_why_follows_locks(container: Container) -> None:
    script = f"echo $$; exec {APP}/deadlock"
    with started([*container.inside, "sh", "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        inner = int(process.stdout.readline())
        for side, (begin, pid) in both(container, inner).items():
            asked = run([*begin, *FLAGFINDER, "why", str(pid), "--json"], timeout=60)
            assert asked.returncode == 0, asked.stderr
            told = json.loads(asked.stdout)
            assert (told["pid"], told["root"]["kind"]) == (pid, "deadlock"), told
            at = {(link["at"]["function"], link["at"]["line"]) for link in told["links"]}
            assert at == {("main", 22), ("other", 12)}, told["links"]
            [home] = told["homes"]
            assert home["inner_pid"] == (inner if side == "outside" else None)


def test_spin_names_a_word(container: Container) -> None:
    with closing(program(container, "spin", "0")) as running:
        running.go()
        for begin, pid in both(container, running.printed["pid"]).values():
            asked = run([*begin, *FLAGFINDER, "spin", str(pid), "--json"], timeout=60)
            assert asked.returncode == 0, asked.stderr
            told = json.loads(asked.stdout)
            [thread] = [thread for thread in told["threads"] if thread["flags"]]
            assert thread["flags"][0]["symbol"] == "word32", told


def test_watch_sees_who_writes(container: Container) -> None:
    for side in ("inside", "outside"):
        with closing(program(container, "planted", "3", "50")) as running:
            begin, pid = both(container, running.printed["pid"])[side]
            options = ["--backend", "perf", "--until", "150"]
            with watching(pid, "writers", "word64", *options, under=begin) as watcher:
                running.go()
                events, end = watcher.rest()
        assert (end["hits"], end["lost"]["total"]) == (150, 0)
        assert {in_function(event) for event in events} == {"planted"}


def test_events_tell_what_a_process_starts(container: Container) -> None:
    script = "echo $$; while :; do sleep 0.05; done"
    with started([*container.inside, "sh", "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        inner = int(process.stdout.readline())
        for side, (begin, pid) in both(container, inner).items():
            path = (APP if begin else container.shared) / f"{side}.events"
            words = command_into(path, "events record", "--pid", pid, "--duration", "2")
            ran = run([*begin, *words], timeout=60)
            assert ran.returncode == 0, ran.stderr
            dump = flagfinder("events", "dump", container.shared / path.name, "--limit", 100000)
            born = re.findall(rf"fork {pid} starts (\d+) of process \1 ", dump.stdout)
            ran_sleep = re.findall(r"exec (\d+) process \1 sleep", dump.stdout)
            assert len(ran_sleep) > 5 and set(ran_sleep) <= set(born), dump.stdout[-2000:]
