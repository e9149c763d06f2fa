# SPDX-License-Identifier: MIT
"""Files that the patient names: looking takes nothing out of them, shows none to whoever may not
read it, and waits for no file system that is silent.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from dead_mount import mounted
from harness import ROOT, compiled, flagfinder, live_or_skip, needs_root, started, wait_until
from sizes import rounds

PROGRAMS = ROOT / "tests" / "live" / "programs"
LOG = Path("/dev/kmsg")
LOOKS = rounds(usual=3, bar=100)
NOBODY = 65534
SECRET = "PASSWORD_hunter2"

pytestmark = [pytest.mark.live, pytest.mark.timeout(300), needs_root("it reads the kernel's log")]


@pytest.fixture
def log() -> Path:
    """Where a line is logged by the kernel."""
    try:
        LOG.write_text("flagfinder tests its looks\n")
        os.close(os.open("/proc/kmsg", os.O_RDONLY | os.O_NONBLOCK))
    except OSError as error:
        live_or_skip(f"this machine lets nobody write or read the kernel's log: {error}")
    return LOG


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that all users may enter, unlike pytest's own."""
    folder = Path(f"/tmp/ff-named-{os.getpid()}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o755)
    yield folder
    shutil.rmtree(folder)


def _keeps_all_lines(log: Path, pid: int, written: Path, process: subprocess.Popen[bytes]) -> None:
    """Each line that is logged while somebody looks comes to the process whose log it is."""
    lines: list[str] = []
    for look in range(LOOKS):
        for verb in (["spin"], ["why"]):
            command = [sys.executable, "-m", "flagfinder", *verb, str(pid)]
            with started(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as looking:
                while looking.poll() is None:
                    lines.append(f"ff-line-{os.getpid()}-{look}-{len(lines)}.")
                    log.write_text(lines[-1] + "\n")
                    time.sleep(0.01)
    assert lines

    def missing() -> list[str]:
        text = written.read_text(errors="replace")
        return [line for line in lines if line not in text]

    deadline = time.monotonic() + 20
    while missing() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert missing() == [], f"{len(missing())} of {len(lines)} lines are lost"
    assert process.poll() is None


@pytest.mark.parametrize("how", ["poll", "wait"])
def test_a_reader_of_the_kernel_s_log_keeps_its_lines(log: Path, tmp_path: Path, how: str) -> None:
    program = compiled(tmp_path / "kmsg", PROGRAMS / "kmsg.c")
    written = tmp_path / "written"
    with written.open("wb") as out, started([program, how], stdout=out) as reader:
        wait_until(reader, lambda: Path(f"/proc/{reader.pid}/fd/3").exists())
        _keeps_all_lines(log, reader.pid, written, reader)


def test_a_look_ends_though_nothing_is_logged(log: Path, tmp_path: Path) -> None:
    program = compiled(tmp_path / "kmsg", PROGRAMS / "kmsg.c")
    with started([program, "wait"], stdout=subprocess.DEVNULL) as reader:
        wait_until(reader, lambda: Path(f"/proc/{reader.pid}/fd/3").exists())
        for verb in ("spin", "why"):
            looked = flagfinder(verb, reader.pid, timeout=60)
            assert looked.returncode in (0, 1), looked.stderr
    assert log.exists()


def test_rsyslogd_keeps_its_lines(log: Path, tmp_path: Path) -> None:
    if shutil.which("rsyslogd") is None:
        live_or_skip("rsyslogd is not installed")
    written, settings = tmp_path / "written", tmp_path / "rsyslog.conf"
    settings.write_text(
        f'global(workDirectory="{tmp_path}")\n'
        'module(load="imklog" permitNonKernelFacility="on")\n'
        f'*.* action(type="omfile" file="{written}" fileOwner="root")\n'
    )
    command = ["rsyslogd", "-n", "-f", settings, "-i", tmp_path / "pid"]
    with started(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as logger:
        log.write_text("ff-begins\n")
        wait_until(logger, lambda: written.exists() and "ff-begins" in written.read_text())
        _keeps_all_lines(log, logger.pid, written, logger)


def test_a_process_that_calls_itself_a_shell_names_no_log_as_its_script(
    log: Path, shared: Path
) -> None:
    source = shared / "bash.c"
    source.write_text("#include <unistd.h>\nint main(void) { for (;;) usleep(100000); }\n")
    program = compiled(shared / "bash", source)
    with started([program, "/proc/kmsg"], user=NOBODY, group=NOBODY, cwd=shared) as shell:
        time.sleep(0.3)
        log.write_text(f"ff-not-taken-{shell.pid}\n")
        looked = flagfinder("why", shell.pid, timeout=60)
        assert looked.returncode in (0, 1), looked.stderr
        reader = os.open("/proc/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        found = b""
        try:
            while f"ff-not-taken-{shell.pid}".encode() not in found:
                found += os.read(reader, 1 << 16)
        except BlockingIOError:
            pytest.fail("the line was taken")
        finally:
            os.close(reader)


def _liar(shared: Path, user: int) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """A user's process that names a source which only root may reach."""
    folder = shared / "secret"
    folder.mkdir(mode=0o700, exist_ok=True)
    secret = folder / "secret.py"
    secret.write_text(f"import time\ndef hidden():\n    while {SECRET}: time.sleep(0.01)\n")
    os.utime(secret, (0, 0))
    text = "import time\ndef hidden():\n    while T: time.sleep(0.01)\nT = 1\nhidden()\n"
    liar = shared / "liar.py"
    liar.write_text(f"exec(compile({text!r}, {os.fspath(secret)!r}, 'exec'))\n")
    return started(["/usr/bin/python3", liar], user=user, group=user, cwd=shared)


def test_a_source_that_the_process_may_not_read_is_not_shown(shared: Path) -> None:
    for user, is_shown in ((NOBODY, False), (0, True)):
        with _liar(shared, user) as process:
            time.sleep(1)
            looked = flagfinder("spin", process.pid, timeout=60)
            assert (SECRET in looked.stdout + looked.stderr) == is_shown, looked.stdout


@pytest.mark.parametrize(
    ("user", "owner", "is_shown"), [(0, 0, True), (NOBODY, 0, False), (0, NOBODY, False)]
)
def test_a_source_that_a_core_s_user_may_not_read_is_not_shown(
    user: int, owner: int, is_shown: bool, shared: Path
) -> None:
    """Its user is its owner, who may have made it up, or root's core names him."""
    if shutil.which("gcore") is None:
        live_or_skip("gcore is not installed")
    with _liar(shared, user) as process:
        time.sleep(1)
        make: list[str | Path] = ["gcore", "-o", shared / "core", str(process.pid)]
        subprocess.run(make, check=True, capture_output=True)
    core = shared / f"core.{process.pid}"
    os.chown(core, owner, owner)
    looked = flagfinder("core", core, "--timeout", 90, timeout=120)
    assert looked.returncode in (0, 1), looked.stderr
    assert (SECRET in looked.stdout + looked.stderr) == is_shown, looked.stdout


def test_a_link_in_a_process_s_root_leads_to_no_file_of_ours(tmp_path: Path) -> None:
    secret = tmp_path / "secret.py"
    secret.write_text(f"import time\ndef hidden():\n    while {SECRET}: time.sleep(0.01)\n")
    os.utime(secret, (0, 0))
    root = tmp_path / "root"
    (root / "home").mkdir(parents=True)
    (root / "home" / "link.py").symlink_to(secret)
    text = "def hidden():\n    while T: time.sleep(0.01)\nT = 1\nhidden()\n"
    code = (
        f"import os, time\nos.chroot({os.fspath(root)!r})\nos.chdir('/home')\n"
        f"exec(compile({text!r}, '/home/link.py', 'exec'))\n"
    )
    with started(["/usr/bin/python3", "-c", code]) as process:
        time.sleep(1)
        looked = flagfinder("spin", process.pid, timeout=60)
        assert SECRET not in looked.stdout + looked.stderr, looked.stdout


def test_a_silent_file_system_is_named_and_not_waited_for(tmp_path: Path) -> None:
    source = tmp_path / "spin.c"
    source.write_text("volatile int never;\nint main(void) { while (!never); }\n")
    program = compiled(tmp_path / "spin", source)
    with mounted(program, tmp_path) as mount, started([mount.app]) as process:
        wait_until(process, lambda: Path(f"/proc/{process.pid}/exe").exists())
        time.sleep(0.5)
        alive = flagfinder("spin", process.pid, timeout=100)
        assert "never" in alive.stdout, alive.stdout + alive.stderr
        mount.dies()
        name = f"its server is process {mount.server} "
        for verb in ("spin", "why"):
            looked = flagfinder(verb, process.pid, timeout=100)
            assert looked.returncode in (0, 1), looked.stderr
            assert name in looked.stdout + looked.stderr, looked.stdout + looked.stderr
        assert process.poll() is None


LEASES = """
import fcntl, os, sys, time
held = os.open(sys.argv[1], os.O_RDONLY)
fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("holds", flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("verb", ["spin", "why"])
def test_who_has_a_lease_on_a_source_keeps_it(verb: str, tmp_path: Path) -> None:
    """Whoever opens the file breaks the lease, and the signal of that ends its holder."""
    source = tmp_path / "polls.py"
    source.write_text("import time\ndone = []\nwhile not done:\n    time.sleep(0.001)\n")
    with started([sys.executable, source]) as patient:
        time.sleep(1)
        holder = [sys.executable, "-c", LEASES, source]
        with started(holder, stdout=subprocess.PIPE, text=True) as holds:
            assert holds.stdout is not None and holds.stdout.readline() == "holds\n"
            ran = flagfinder(verb, patient.pid, timeout=60)
            assert ran.returncode in (0, 1), ran.stderr
            assert holds.poll() is None, ran.stdout
            leases = Path("/proc/locks").read_text().splitlines()
            [lease] = [one for one in leases if "LEASE" in one and f" {holds.pid} " in one]
            assert "ACTIVE" in lease and "WRITE" in lease


def test_a_core_that_names_the_kernel_s_log_reads_nothing_of_it(log: Path, tmp_path: Path) -> None:
    if shutil.which("gcore") is None:
        live_or_skip("gcore is not installed")
    source = tmp_path / "spin.c"
    source.write_text("volatile int never;\nint main(void) { while (!never); }\n")
    program = compiled(tmp_path / "spin", source)
    with started([program]) as process:
        time.sleep(0.3)
        subprocess.run(
            ["gcore", "-o", tmp_path / "core", str(process.pid)], check=True, capture_output=True
        )
        core = tmp_path / f"core.{process.pid}"
    name = os.fsencode(program)
    log_name = b"/proc" + b"/" * (len(name) - len("/prockmsg")) + b"kmsg"
    assert len(log_name) == len(name)
    core.write_bytes(core.read_bytes().replace(name, log_name))
    log.write_text("ff-of-nobody\n")
    looked = flagfinder("core", core, timeout=100)
    assert looked.returncode in (0, 1, 65), looked.stderr
    why = flagfinder("why", "--core", core, timeout=100)
    assert why.returncode in (0, 1, 65), why.stderr


def test_the_output_empties_no_file_to_which_a_link_leads(tmp_path: Path) -> None:
    source = tmp_path / "spin.c"
    source.write_text("volatile int never;\nint main(void) { while (!never); }\n")
    program = compiled(tmp_path / "spin", source)
    kept, link = tmp_path / "kept", tmp_path / "link"
    kept.write_text("kept")
    link.symlink_to(kept)
    with started([program]) as process:
        refused = flagfinder(
            "events", "record", "--pid", process.pid, "-o", link, "--duration", 1, timeout=60
        )
    assert "it is a link to a file" in refused.stderr, refused.stderr
    assert refused.returncode != 0
    assert kept.read_text() == "kept"
