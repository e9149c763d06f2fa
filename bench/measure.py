# SPDX-License-Identifier: MIT
"""Times commands, describes the machine, prints tables. In: command lines. Out: Samples and
text.

The benches tell what flagfinder costs, the lab how often it is right. Each script prints a table;
its first lines say of what. `events_speed.py`, `hosts.py`, `watch_speed.py`, `memory.py` and
`pictures.py` need root, `pictures.py` also chromium, `spin_safety.py` rsyslogd, of which no other
may run then. Other tools are measured where they are installed, DynamoRIO's own clients in
`DRMEMTRACE_HOME`. Example, on an idle machine: `.venv/bin/python bench/record_speed.py --runs 3
--workloads gzip,threads`.

A run is added to its topic's file in `results/`: date, machine (`machines.json` has its facts),
load, command, rows. `report.py` makes the page of them; no other document has figures.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Sample:
    """One run of a command: seconds on the clock, CPU seconds of it and of the children that it
    waited for.

    A recorder's child is the target, so ``children_cpu`` is what the target itself paid.
    ``timed_out``: killed at the limit, so all figures are lower bounds.
    """

    wall: float
    own_cpu: float
    children_cpu: float
    status: int
    timed_out: bool

    @property
    def cpu(self) -> float:
        """CPU seconds of the whole tree."""
        return self.own_cpu + self.children_cpu


def timed(
    command: Sequence[str | os.PathLike[str]],
    *,
    timeout: float,
    env: Mapping[str, str] | None = None,
    errors: Path | None = None,
) -> Sample:
    """Runs a command to its end, stdout to /dev/null, stderr to ``errors``. At the timeout its
    session is killed.
    """
    expired = threading.Event()
    with open(errors or os.devnull, "wb") as stderr:  # noqa: PTH123 (os.devnull is a string)
        began = time.monotonic()
        process = subprocess.Popen(
            [os.fspath(word) for word in command],
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
        )

        # Autogroups schedule by session and would undo the niceness that this process was given.
        with contextlib.suppress(OSError):
            Path(f"/proc/{process.pid}/autogroup").write_text(str(os.nice(0)))

        def expire() -> None:
            expired.set()
            kill_session(process.pid)

        timer = threading.Timer(timeout, expire)
        timer.start()
        try:
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            wall = time.monotonic() - began
            # Dead and not yet reaped: its own and its children's times can still be told apart.
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2].split()
        finally:
            timer.cancel()
            kill_session(process.pid)
            _, status = os.waitpid(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
    user, system, children_user, children_system = (int(text) / _TICKS for text in fields[11:15])
    return Sample(
        wall,
        user + system,
        children_user + children_system,
        process.returncode,
        expired.is_set(),
    )


def kill_session(leader: int) -> None:
    """SIGKILL to every process of a session."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if os.getsid(int(entry.name)) == leader:
                    os.kill(int(entry.name), signal.SIGKILL)


def alternate(names: Sequence[str], times: int) -> Iterator[tuple[int, str]]:
    """Each name ``times`` times, taking turns; every other turn runs backwards, against drift."""
    for turn in range(times):
        for name in names if turn % 2 == 0 else reversed(names):
            yield turn, name


def median(values: Sequence[float]) -> float:
    """The median; there is at least one value."""
    return statistics.median(values)


def spread(values: Sequence[float]) -> str:
    """``3.2 (3.1-3.4)``: median, least and greatest."""
    if len(values) == 1:
        return f"{values[0]:.2f}"
    return f"{median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [list(header), *[list(row) for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    rule = ["-" * width for width in widths]
    return "\n".join(
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in [lines[0], rule, *lines[1:]]
    )


def first_line(*command: str) -> str:
    """The first line that a command prints, as for ``--version``; "absent" if it can't be run."""
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "absent"
    lines = (ran.stdout or ran.stderr).splitlines()
    return next((line.strip() for line in lines if line.strip()), "absent")


def machine() -> str:
    """Processor, cores, memory, kernel, system, load and date; no names."""
    cpuinfo = Path("/proc/cpuinfo").read_text()
    model = next(
        (line.split(":", 1)[1].strip() for line in cpuinfo.splitlines() if "model name" in line),
        "unknown",
    )
    features = "AVX-512" if " avx512f" in cpuinfo else "no AVX-512"
    virtual = ", virtual machine" if " hypervisor" in cpuinfo else ""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    kernel = platform.release().split("-")[0]
    return (
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC; {model} ({features}{virtual}),"
        f" {os.cpu_count()} cores, {memory:.0f} GiB; {system}, kernel {kernel}; niceness "
        f"{os.nice(0)}; load average {load}"
    )
