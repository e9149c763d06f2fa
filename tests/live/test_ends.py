# SPDX-License-Identifier: MIT
"""Everything ends: at its time limit, and where the kernel holds whoever asks. The process that was
asked about is as it was.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml
from collections.abc import Iterator
from pathlib import Path

import pytest
import schemas
from dead_mount import DeadMount, mounted
from harness import (
    FLAGFINDER,
    assert_four_parts,
    compiled,
    flagfinder,
    live_or_skip,
    run,
    started,
    wait_until,
    work_done,
)

import flagfinder as api
from flagfinder.live.guard import guard

pytestmark = pytest.mark.live

NOBODY = 65534
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]

SPINS = """
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
volatile int flag;
static pthread_barrier_t all;
static void *spin(void *unused)
{
    pthread_barrier_wait(&all);
    while (!flag)
        __builtin_ia32_pause();
    return unused;
}
int main(int count, char **words)
{
    pthread_t thread;
    pthread_attr_t small;
    struct sched_param none = {0};
    /* Others on this machine go before all these threads. */
    sched_setscheduler(0, SCHED_IDLE, &none);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    int threads = count > 1 ? atoi(words[1]) : 1;
    pthread_barrier_init(&all, NULL, threads + 1);
    for (int i = 0; i < threads; i++)
        pthread_create(&thread, &small, spin, NULL);
    pthread_barrier_wait(&all);
    puts("ready");
    fflush(stdout);
    pthread_join(thread, NULL);
    return 0;
}
"""
ROOTS = """
#include <stdio.h>
#include <unistd.h>
int main(void)
{
    if (setgid(0) || setuid(0)) {
        perror("setuid");
        return 1;
    }
    for (;;)
        pause();
}
"""


@pytest.fixture(scope="module")
def spins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("spins") / "spins.c"
    source.write_text(SPINS)
    return compiled(source.with_suffix(""), source)


@contextlib.contextmanager
def spinning(program: Path, threads: int) -> Iterator[subprocess.Popen[bytes]]:
    """The program, once so many threads of it spin."""
    with started([program, threads], stdout=subprocess.PIPE) as patient:
        assert patient.stdout is not None
        assert patient.stdout.readline() == b"ready\n"
        yield patient


def untouched(pid: int) -> dict[str, list[str]]:
    """Of each thread that it is not stopped, its tracer and its signals."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        lines = (task / "status").read_text().splitlines()
        kept = ("TracerPid", "SigBlk", "SigIgn", "SigCgt", "Cpus_allowed:")
        stops = [line for line in lines if line.startswith("State:") and line.split()[1] in "Tt"]
        found[task.name] = stops + [line for line in lines if line.startswith(kept)]
    return found


@contextlib.contextmanager
def unharmed(pid: int) -> Iterator[None]:
    """The threads of the process are in the end as they were, and go on."""
    before = untouched(pid)
    yield
    deadline = time.monotonic() + 60
    while untouched(pid) != before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert untouched(pid) == before
    done = work_done(pid)
    while work_done(pid) == done and time.monotonic() < deadline:
        time.sleep(0.1)
    assert work_done(pid) > done


@pytest.mark.parametrize("verb", ["spin", "why"])
def test_what_the_limit_left_no_time_for_is_told(verb: str, spins: Path) -> None:
    with spinning(spins, 300) as patient, unharmed(patient.pid):
        ran = flagfinder(verb, patient.pid, "--timeout", "0.3", "--json", timeout=60)
    assert ran.returncode == 1, ran.stderr
    report = json.loads(ran.stdout)
    schemas.validate(report)
    assert report["not_asked"]
    [note] = [note for note in report["notes"] if note.startswith("not asked, ")]
    assert "the time limit of 0.3 s was over: " in note
    if verb == "spin":
        reasons = [thread["reason"] for thread in report["threads"]]
        assert any(reason.startswith("not looked at, for want of time") for reason in reasons)


def test_the_python_api_has_the_same_limit(spins: Path) -> None:
    with spinning(spins, 300) as patient, unharmed(patient.pid):
        spun = api.spin(patient.pid, timeout=0.25)
        asked = api.why(patient.pid, timeout=0.25)
    assert spun.not_asked and asked.not_asked
    assert not spun.found and not asked.found


def test_a_core_has_the_same_limit(spins: Path, tmp_path: Path) -> None:
    with spinning(spins, 20) as patient:
        core = tmp_path / "core"
        api_core = f"from flagfinder import _core; _core.write_core({patient.pid}, {str(core)!r})"
        assert run([sys.executable, "-P", "-c", api_core], timeout=120).returncode == 0
    for words in (["core", core], ["why", "--core", core]):
        ran = flagfinder(*words, "--timeout", "0.01", "--json", timeout=120)
        assert ran.returncode == 1, ran.stderr
        report = json.loads(ran.stdout)
        schemas.validate(report)
        assert report["not_asked"], words


def test_without_need_of_the_limit_nothing_is_left_out(spins: Path) -> None:
    with spinning(spins, 1) as patient:
        ran = flagfinder("spin", patient.pid, "--json", timeout=60)
    report = json.loads(ran.stdout)
    assert ran.returncode == 0 and report["not_asked"] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_what_ends_the_command_ends_the_child_that_asks(
    number: signal.Signals, spins: Path
) -> None:
    with spinning(spins, 20) as patient, unharmed(patient.pid):
        command = ["env", "--default-signal=INT", *FLAGFINDER, "spin", str(patient.pid)]
        with started(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as asks:
            assert asks.stderr is not None
            asks.stderr.readline()  # it is about to look at threads
            below = _children(asks.pid)
            assert below
            asks.send_signal(number)
            _, words = asks.communicate(timeout=60)
            if number == signal.SIGINT:
                assert asks.returncode == 130 and b"Traceback" not in words
            deadline = time.monotonic() + 30
            while any(map(_lives, below)) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert not any(map(_lives, below))


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@contextlib.contextmanager
def on_dead_mount(spins: Path, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], DeadMount]]:
    """A program that spins, and whose file is on a file system that no longer answers."""
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        live_or_skip("to mount FUSE needs root and /dev/fuse")
    with mounted(spins, folder) as mount, spinning(mount.app, 1) as patient:
        mount.dies()
        yield patient, mount


@pytest.mark.parametrize("verb", ["spin", "why"])
def test_a_dead_file_system_holds_up_nobody(verb: str, spins: Path, tmp_path: Path) -> None:
    with on_dead_mount(spins, tmp_path) as (patient, _), unharmed(patient.pid):
        # It does not wait for its limit. Its output ends, too, though a process is left behind.
        ran = flagfinder(verb, patient.pid, "--json", "--timeout", "600", timeout=120)
        assert ran.returncode in (0, 1), ran.stderr
        report = json.loads(ran.stdout)
    schemas.validate(report)
    if report["not_asked"]:
        assert any("request_wait_answer" in what for what in report["not_asked"]), report
        assert any("a file system has not answered" in note for note in report["notes"])


def _spins(pid: int, app: Path) -> bool:
    """Whether the process executes the program, whose code it then has read."""
    try:
        return Path(f"/proc/{pid}/exe").readlink() == app and work_done(pid) > 20
    except OSError:
        return False


def test_guard_ends_its_tree_on_a_dead_file_system(spins: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        live_or_skip("to mount FUSE needs root and /dev/fuse")
    output, junit = tmp_path / "hang", tmp_path / "junit.xml"
    with mounted(spins, tmp_path) as mount:
        command = ["guard", "--after", "3", "-o", output, "--junit", junit, "--json"]
        # What can't be ended would hold guard's output open.
        quiet = ["sh", "-c", f"exec {mount.app} >/dev/null 2>&1"]
        words = [*FLAGFINDER, *map(str, command), "--", *quiet]
        with started(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as guards:
            wait_until(guards, lambda: any(_spins(pid, mount.app) for pid in _children(guards.pid)))
            mount.dies()
            guarded = _children(guards.pid)
            said, words_said = guards.communicate(timeout=120)
        assert guards.returncode == 124, words_said
        assert not any(map(_lives, guarded[:1]))
    answer = json.loads(said)
    schemas.validate(answer)
    assert answer["hung"] and answer["reports"] and answer["left"] == []
    [failure] = xml.parse(junit).getroot().iter("failure")
    assert failure.get("type") == "hang"
    assert "it ran for 3 s" in (output / "why.txt").read_text()


def test_guard_ends_where_its_program_never_begins(spins: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        live_or_skip("to mount FUSE needs root and /dev/fuse")
    with mounted(spins, tmp_path) as mount:
        mount.dies()
        # What can't be ended would hold a pipe open.
        with (tmp_path / "said").open("wb") as said:
            words = [*FLAGFINDER, "guard", "--after", "1", "--json", "--", mount.app]
            begin = time.monotonic()
            with started(words, stdout=said, stderr=subprocess.DEVNULL) as guards:
                assert guards.wait(timeout=120) == 124
            assert time.monotonic() - begin < 15
        answer = json.loads((tmp_path / "said").read_text())
        assert "its program did not begin: " in answer["because"], answer
        assert f"its server is process {mount.server}" in answer["because"], answer
        # Its process still has the guard's own code, which is not what hangs.
        assert "guard.py" not in json.dumps(answer["reports"]), answer


def test_guard_ends_where_its_story_can_t_be_written(spins: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        live_or_skip("to mount FUSE needs root and /dev/fuse")
    with mounted(spins, tmp_path) as mount:
        mount.dies()
        words = ["guard", "--after", "1", "--timeout", "4", "-o", mount.app.parent / "hang"]
        ran = flagfinder(*words, "--", "sleep", "1000", timeout=120)
        assert ran.returncode == 124, ran.stderr
        assert "can't be written: " in ran.stderr, ran.stderr
        assert f"its server is process {mount.server}" in ran.stderr, ran.stderr
        assert "sleeps" in ran.stdout, ran.stdout


@pytest.mark.parametrize("what", ["program", "folder", "output"])
@pytest.mark.parametrize("end", ["time", "signal"])
def test_a_recording_ends_on_a_file_system_that_does_not_answer(
    what: str, end: str, spins: Path, tmp_path: Path
) -> None:
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        live_or_skip("to mount FUSE needs root and /dev/fuse")
    with mounted(spins, tmp_path) as mount, (tmp_path / "said").open("wb") as said:
        silent = mount.app.parent
        output = silent / "trace" if what == "output" else tmp_path / "trace"
        program = {"program": mount.app, "folder": "./app", "output": spins}[what]
        limit = ["--stop-after", "1"] if end == "time" else []
        folder = silent if what == "folder" else tmp_path
        # Nobody can go there any more once it is silent.
        waits = ["sh", "-c", 'cd "$0" && echo && read -r go && exec "$@" >/dev/null', folder]
        words = [*waits, *FLAGFINDER, "record", "-o", output, *limit, "--", program]
        # What can't be ended would hold a pipe open.
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": said}
        with started(words, **pipes) as records:
            assert records.stdin is not None and records.stdout is not None
            assert records.stdout.readline() == b"\n"
            mount.dies()
            records.stdin.write(b"\n")
            records.stdin.close()
            if end == "signal":
                time.sleep(3)
                records.send_signal(signal.SIGINT)
            assert records.wait(timeout=60) == 69
    told = (tmp_path / "said").read_text()
    assert_four_parts(told, "The recording could not be brought to its end")
    assert f" does not answer: its server is process {mount.server} " in told, told


def test_the_python_api_s_does_too(spins: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        live_or_skip("to mount FUSE needs root and /dev/fuse")
    script = (
        "import sys, flagfinder as f\n"
        "options = f.RecordOptions(stop_after=1)\n"
        "try:\n    f.record([sys.argv[1]], sys.argv[2], options)\n"
        "except f.UnavailableError as error:\n    print(error.found)\n"
    )
    with mounted(spins, tmp_path) as mount, (tmp_path / "said").open("wb") as said:
        mount.dies()
        words = [sys.executable, "-P", "-c", script, mount.app, tmp_path / "trace"]
        with started(words, stdout=said) as records:
            assert records.wait(timeout=60) == 0
    told = (tmp_path / "said").read_text()
    assert f" does not answer: its server is process {mount.server} " in told, told


@pytest.mark.parametrize("when", ["at first", "meanwhile"])
def test_an_answer_s_file_on_a_silent_file_system_holds_up_nobody(
    when: str, spins: Path, tmp_path: Path
) -> None:
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        live_or_skip("to mount FUSE needs root and /dev/fuse")
    with mounted(spins, tmp_path) as mount, (tmp_path / "said").open("w+b") as said:
        answer = mount.app.with_name("answer")
        words = ["guard", "--after", "2", "--json-file", answer, "--", "sleep", "1000"]
        if when == "at first":
            mount.dies()
        with started([*FLAGFINDER, *words], stderr=said) as guards:
            if when == "meanwhile":
                wait_until(guards, answer.exists)
                mount.dies()
            assert guards.wait(timeout=60) == 2
        told = (tmp_path / "said").read_text()
        assert f" does not answer: its server is process {mount.server} " in told, told


@pytest.mark.parametrize("verb", ["find", "lldb"])
def test_so_does_whatever_else_records(verb: str, spins: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        live_or_skip("to mount FUSE needs root and /dev/fuse")
    with mounted(spins, tmp_path) as mount, (tmp_path / "said").open("wb") as said:
        words = {
            "find": ["find", "-d", tmp_path, "--normal", mount.app, "--spin", mount.app],
            "lldb": ["record", "--tracer", "lldb", "-o", tmp_path / "trace", "--", mount.app],
        }[verb]
        mount.dies()
        with started([*FLAGFINDER, *words], stdout=said, stderr=said) as records:
            time.sleep(5)
            records.send_signal(signal.SIGINT)
            assert records.wait(timeout=60) == 69
    told = (tmp_path / "said").read_text()
    assert_four_parts(told[told.index("flagfinder: ") :], "could not be brought to its end")
    assert f" does not answer: its server is process {mount.server} " in told, told


@pytest.mark.parametrize("then", ["kill", "leave"])
def test_a_recorded_program_may_wait_for_a_file_system(
    then: str, spins: Path, tmp_path: Path
) -> None:
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        live_or_skip("to mount FUSE needs root and /dev/fuse")
    trace = tmp_path / "trace"
    with mounted(spins, tmp_path) as mount, (tmp_path / "said").open("wb") as said:
        program = ["sh", "-c", f'echo > "$0"; sleep 3; exec < {mount.app}', tmp_path / "runs"]
        limit = ["--stop-after", "6", "--then", then]
        words = [*FLAGFINDER, "record", "-o", trace, *limit, "--", *program]
        with started(words, stderr=said) as records:
            wait_until(records, (tmp_path / "runs").exists)
            mount.dies()
            assert records.wait(timeout=60) == 0, (tmp_path / "said").read_text()
    assert flagfinder("trace", "check", trace).returncode == 0


def test_a_recording_ends_whose_output_is_silent_all_at_once(spins: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        live_or_skip("to mount FUSE needs root and /dev/fuse")
    with mounted(spins, tmp_path) as mount, (tmp_path / "said").open("wb") as said:
        trace = mount.app.parent / "trace"
        with started([*FLAGFINDER, "record", "-o", trace, "--", spins], stderr=said) as records:
            wait_until(records, lambda: trace.exists() and trace.stat().st_size > 4096)
            mount.dies()
            time.sleep(2)
            records.send_signal(signal.SIGINT)
            assert records.wait(timeout=60) == 69
    told = (tmp_path / "said").read_text()
    assert f"{trace} does not answer: its server is process {mount.server} " in told, told


def test_a_signal_to_a_whole_group_is_one_signal(spins: Path, tmp_path: Path) -> None:
    """Whoever outlives the recorder passes signals on to it."""
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        live_or_skip("to mount FUSE needs root and /dev/fuse")
    trace, runs = tmp_path / "trace", tmp_path / "runs"
    program = ["sh", "-c", f"trap 'echo heard' INT; echo > {runs}; sleep 4; sleep 1; exit 7"]
    with mounted(spins, tmp_path):
        words = [*FLAGFINDER, "record", "-o", trace, "--", *program]
        with started(words, stderr=subprocess.DEVNULL) as records:
            wait_until(records, runs.exists)
            os.killpg(records.pid, signal.SIGINT)
            assert records.wait(timeout=60) == 7


def test_a_mark_finds_a_recorder_by_its_command(spins: Path, tmp_path: Path) -> None:
    """The user knows the command; a child of it records, and listens for marks."""
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        live_or_skip("to mount FUSE needs root and /dev/fuse")
    runs = tmp_path / "runs"
    program = ["sh", "-c", f"echo > {runs}; while :; do sleep 0.1; done"]
    with mounted(spins, tmp_path):
        words = [*FLAGFINDER, "record", "-o", tmp_path / "trace", "--", *program]
        with started(words, stderr=subprocess.PIPE, text=True) as records:
            wait_until(records, runs.exists)
            marked = flagfinder("mark", "--end", "it hangs", "--recorder", str(records.pid))
            assert marked.returncode == 0, marked.stderr
            assert f"ended the recording of process {records.pid}\n" in marked.stderr
            assert "it hangs" in records.communicate(timeout=60)[1]
            assert records.returncode == 0


def test_guard_in_a_process_that_goes_on_leaves_no_child_behind() -> None:
    def ended() -> set[str]:
        own = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        return {pid for pid in own if "Z" in _stat_of(pid)}

    before = ended()
    script = "(sleep 0.1 &) ; sleep 0.5; exit 3"
    assert guard(["sh", "-c", script], after=30, hung=lambda _: None) == 3
    assert ended() == before


def _stat_of(pid: str) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_guard_of_a_program_on_a_dead_file_system(
    number: signal.Signals, spins: Path, tmp_path: Path
) -> None:
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        live_or_skip("to mount FUSE needs root and /dev/fuse")
    with mounted(spins, tmp_path) as mount:
        words = [*FLAGFINDER, "guard", "--after", "4", "--", str(mount.app)]
        with started(words, stderr=subprocess.DEVNULL) as guards:
            wait_until(guards, lambda: any(_spins(pid, mount.app) for pid in _children(guards.pid)))
            guarded = _children(guards.pid)
            mount.dies()
            wait_until(guards, lambda: len(_children(guards.pid)) > 1)  # it asks
            guards.send_signal(number)
            assert guards.wait(timeout=60) == 130
        assert not any(map(_lives, guarded))


def test_pytest_goes_on_after_a_test_on_a_dead_file_system(spins: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        live_or_skip("to mount FUSE needs root and /dev/fuse")
    with mounted(spins, tmp_path) as mount:
        folder = tmp_path / "tests"
        folder.mkdir()
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "test_hangs.py").write_text(
            "import os, subprocess\n\n"
            "def test_hangs():\n"
            f"    with subprocess.Popen([{str(mount.app)!r}]) as child:\n"
            f"        os.kill({mount.server}, {int(signal.SIGUSR1)})\n"
            "        try:\n"
            "            child.wait()\n"
            "        finally:\n"
            "            child.kill()\n\n"
            "def test_good():\n    pass\n"
        )
        words = [sys.executable, "-P", "-m", "pytest", "-p", "no:cacheprovider"]
        words += ["-p", "no:rerunfailures", "--flagfinder-after=1"]
        ran = run(words, timeout=200, cwd=folder)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "1 failed, 1 passed" in ran.stdout, ran.stdout
    assert "it runs for longer than 1 s" in ran.stdout


@pytest.fixture
def roots() -> Iterator[Path]:
    """A program that becomes root's, in a folder that nobody may use."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        live_or_skip("becoming another user needs root and setpriv (util-linux)")
    with tempfile.TemporaryDirectory(prefix="flagfinder-nobody-", dir="/tmp") as name:
        folder = Path(name)
        (folder / "roots.c").write_text(ROOTS)
        program = compiled(folder / "roots", folder / "roots.c")
        program.chmod(0o4755)
        os.chown(folder, NOBODY, NOBODY)
        yield program


def test_guard_ends_what_it_may_and_names_what_it_may_not(roots: Path) -> None:
    folder = roots.parent
    mark = f"guarded-{os.getpid()}"
    # What is left would hold guard's output open.
    script = f"sleep 1000 & {roots} >/dev/null 2>&1 & sleep 2000; : {mark}"
    words = ["guard", "--after", "2", "-o", folder / "hang", "--junit", folder / "junit.xml"]
    command = [*AS_NOBODY, *FLAGFINDER, *words, "--json", "--", "sh", "-c", script]
    ran = run(command, timeout=120, cwd=folder, env={"FF_CACHE_DIR": str(folder / "cache")})
    assert ran.returncode == 124, ran.stderr
    answer = json.loads(ran.stdout)
    schemas.validate(answer)
    [left] = answer["left"]
    try:
        assert (left["name"], left["user"]) == ("roots", "root")
        told = f"process {left['pid']} (roots, user root) was not ended: it belongs to another user"
        assert told in answer["notes"] and f"warning: {told}" in ran.stderr
        assert told in (folder / "hang" / "why.txt").read_text()
        [failure] = xml.parse(folder / "junit.xml").getroot().iter("failure")
        assert failure.get("type") == "hang" and told in (failure.text or "")
        others = [pid for pid in _guarded(mark, folder) if pid != left["pid"]]
        assert not others
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(left["pid"], signal.SIGKILL)


def _guarded(mark: str, folder: Path) -> list[int]:
    """Processes of the guarded script that live."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            pid = int(entry.name)
            is_there = (entry / "cwd").readlink() == folder and _lives(pid)
            if is_there or mark.encode() in (entry / "cmdline").read_bytes():
                found.append(pid)
    return [pid for pid in found if pid != os.getpid() and _lives(pid)]
