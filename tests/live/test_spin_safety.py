# SPDX-License-Identifier: MIT
"""What `flagfinder spin` must never do to its patient: kill it, lose its signals, change a result,
hang on it.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from answering import AnsweringProgram
from harness import FLAGFINDER, compiled, flagfinder, kill_session, live_or_skip, run, started
from signal_state import is_traced, states
from sizes import rounds

import flagfinder as api
from flagfinder import _core

ROUNDS = rounds(usual=4, bar=200)
KILLS = rounds(usual=3, bar=50)

PROGRAM = r"""
#include "handlers.h"
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>

volatile int never;
static volatile sig_atomic_t alarms, asked, wrong;
static volatile int ending;
static pthread_mutex_t big_lock = PTHREAD_MUTEX_INITIALIZER;
static int channel[2], ends[2];

static void on_alarm(int number) { (void)number; alarms++; }
static void on_user(int number) { (void)number; asked++; }
static void on_trap(int number) { (void)number; wrong += 100000; }

static void *spinner(void *unused)
{
    while (!never && !ending)
        sched_yield();
    return unused;
}

/* No signal interrupts these two: what their calls return is the kernel's answer, or a tracer's
 * fault. */
static void block_signals(void)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
}

static void *poller(void *unused)
{
    block_signals();
    while (!never && !ending)
        if (poll(NULL, 0, 7) != 0)
            wrong++;
    return unused;
}

/* epoll_wait answers EINTR to a tracer's stop unless that is undone. */
static void *waiter(void *unused)
{
    struct epoll_event event;
    int set = epoll_create1(0);
    block_signals();
    while (!ending)
        if (epoll_wait(set, &event, 1, 30) != 0)
            wrong += 1000;
    return unused;
}

/* So does a socket with a limit of time. */
static void *receiver(void *unused)
{
    char byte;
    block_signals();
    if (recv(ends[0], &byte, 1, 0) != 1)
        wrong += 10000;
    return unused;
}

static void *holder(void *unused)
{
    char byte;
    pthread_mutex_lock(&big_lock);
    if (read(channel[0], &byte, 1) < 0)
        wrong++;
    pthread_mutex_unlock(&big_lock);
    return unused;
}

static void *blocked(void *unused)
{
    usleep(200000);
    pthread_mutex_lock(&big_lock);
    pthread_mutex_unlock(&big_lock);
    return unused;
}

int main(void)
{
    void *(*work[])(void *) = {spinner, poller, waiter, holder, blocked, receiver};
    pthread_t threads[6];
    struct timeval patience = {.tv_sec = 600};
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    struct itimerval every = {{0, 20000}, {0, 20000}};
    char line[16];
    if (pipe(channel) != 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        return 1;
    setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    sigaction(SIGALRM, &action, NULL);
    action.sa_handler = on_user;
    sigaction(SIGUSR1, &action, NULL);
    action.sa_handler = on_trap;
    sigfillset(&action.sa_mask);
    sigaction(SIGTRAP, &action, NULL);
    signal(SIGUSR2, SIG_IGN);
    setitimer(ITIMER_REAL, &every, NULL);
    for (int i = 0; i < 6; i++)
        pthread_create(&threads[i], NULL, work[i], NULL);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n") != 0) {
        if (strcmp(line, "state\n") == 0) {
            print_handlers();
            continue;
        }
        printf("%d %d %d\n", (int)alarms, (int)asked, (int)wrong);
        fflush(stdout);
    }
    ending = 1;
    if (write(channel[1], "x", 1) != 1 || send(ends[1], "x", 1, 0) != 1)
        return 1;
    for (int i = 0; i < 6; i++)
        pthread_join(threads[i], NULL);
    printf("%d\n", (int)wrong);
    return 0;
}
"""


class Patient(AnsweringProgram):
    """The program above, with a question for its counters."""

    def __init__(self, program: Path) -> None:
        super().__init__([program])
        time.sleep(0.4)

    def counters(self) -> tuple[int, int, int]:
        alarms, asked, wrong = map(int, self.answer_to("count").split())
        return alarms, asked, wrong

    def end(self, was_stopped: bool = False) -> None:
        # SIGSTOP itself makes epoll_wait answer EINTR.
        is_right = self.answer_to("end") == "0"
        assert is_right or was_stopped, "a call returned what it would not have returned"
        assert self.process.wait(timeout=20) == 0

    def states(self) -> tuple[dict[str, dict[str, str]], str]:
        """Masks, tracers and processors of all threads; what is done with each signal."""
        handlers = self.answer_to("state")
        # Alarms wait now and then.
        return states(self.pid, pending=False), handlers

    def is_traced(self) -> bool:
        return is_traced(self.pid)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("patient") / "patient.c"
    source.write_text(PROGRAM)
    return compiled(source.with_suffix(""), source, "-I", Path(__file__).with_name("programs"))


@pytest.fixture
def patient(program: Path) -> Iterator[Patient]:
    patient = Patient(program)
    try:
        yield patient
    finally:
        kill_session(patient.process)


@pytest.mark.live
@pytest.mark.parametrize("in_place", [False, True], ids=["copies", "in-place"])
def test_rounds_leave_no_trace(patient: Patient, in_place: bool) -> None:
    before = patient.states()
    for round_ in range(ROUNDS):
        alarms, asked, wrong = patient.counters()
        os.kill(patient.pid, signal.SIGUSR1)
        report = api.spin(patient.pid, budget=0.1, in_place=in_place)
        # Two words end the wait. Its main thread owes `ending`, nobody owes `never`.
        assert report.flag is not None, f"round {round_}: {report.raw}"
        assert report.flag.symbol in ("ending", "never"), f"round {round_}: {report.raw}"
        later = patient.counters()
        assert later[0] > alarms and later[1] == asked + 1 and later[2] == wrong == 0
    assert patient.states() == before, (
        "handlers, masks or processors changed, or a thread is still traced"
    )
    patient.end()


def look_ten_times(source: str, folder: Path, *flags: str) -> None:
    """The program counts what goes wrong with it; when it is asked to end, it exits with 0 if
    nothing did.
    """
    built = compiled(folder / "patient", Path(__file__).with_name("programs") / source, *flags)
    with started([built], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None and program.stdout.readline() == "ready\n"
        for _ in range(10):
            threads = api.spin(program.pid, budget=0.1, in_place=True).threads
            assert any(thread.steps for thread in threads), threads
        program.terminate()
        assert program.wait(timeout=20) == 0, "something that a tracer does showed"


@pytest.mark.live
def test_flags_saved_while_it_is_stepped_hold_no_trap(tmp_path: Path) -> None:
    look_ten_times("saved_flags.c", tmp_path, "-mno-red-zone")


@pytest.mark.live
def test_a_program_that_looks_at_its_processors_sees_its_own(tmp_path: Path) -> None:
    look_ten_times("affinity.c", tmp_path)


@pytest.mark.live
@pytest.mark.parametrize("verb", ["spin", "why", "core"])
def test_shared_memory_that_nobody_touched_stays_so(verb: str, tmp_path: Path) -> None:
    built = compiled(tmp_path / "sparse", Path(__file__).with_name("programs") / "sparse.c")
    with started([built], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin is not None and program.stdout is not None
        assert program.stdout.readline() == "ready\n"

        def beyond_its_own() -> int:
            """KiB of shared memory that it has, beyond what it looked at itself."""
            assert program.stdin is not None and program.stdout is not None
            program.stdin.write("\n")
            program.stdin.flush()
            looked = int(program.stdout.readline())
            lines = Path(f"/proc/{program.pid}/status").read_text().splitlines()
            resident = next(line.split()[1] for line in lines if line.startswith("RssShmem:"))
            return int(resident) - 4 * looked

        before = beyond_its_own()
        for _ in range(2):
            if verb == "core":
                _core.write_core(program.pid, str(tmp_path / "core"))
                continue
            ran = flagfinder(verb, program.pid, timeout=120)
            assert ran.returncode in (0, 1), ran.stderr
        assert beyond_its_own() - before < 1024, "a look made pages of it"


@pytest.mark.live
def test_a_stop_is_no_longer_than_allowed_or_the_report_tells_why(patient: Patient) -> None:
    """However busy the processors are."""
    budget = 0.2
    with contextlib.ExitStack() as load:
        for _ in range(6 * len(os.sched_getaffinity(0))):
            load.enter_context(started(["sh", "-c", "while :; do :; done"]))
        for _ in range(ROUNDS):
            report = api.spin(patient.pid, budget=budget, in_place=True)
            for thread in report.threads:
                told = any(
                    note.startswith(f"thread {thread.tid} stood still") for note in report.notes
                )
                assert thread.pause_ms <= budget * 1000 or told, report.raw
    patient.end()


@pytest.mark.live
@pytest.mark.parametrize("options", [[], ["--in-place"]], ids=["copies", "in-place"])
def test_kill_of_the_command_in_the_middle_does_no_harm(
    patient: Patient, options: list[str]
) -> None:
    before, in_the_middle = patient.states(), 0
    # Where others take the processors, a thread may be let go before the kill comes.
    for kill in range(KILLS if not options else 10 * KILLS):
        if kill >= KILLS and in_the_middle:
            break
        command = subprocess.Popen(
            [*FLAGFINDER, "spin", *options, str(patient.pid)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 20
        while not patient.is_traced() and command.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(random.random() * 0.1)
        command.kill()
        command.wait(timeout=10)
        in_the_middle += patient.is_traced()
        deadline = time.monotonic() + 10
        while patient.is_traced():
            assert time.monotonic() < deadline, "the helper did not let go"
            time.sleep(0.005)
        alarms = patient.counters()[0]
        time.sleep(0.1)
        assert patient.counters()[0] > alarms, "signals no longer arrive"
    # A copy holds its thread too shortly to be killed then each time.
    assert in_the_middle or not options, (
        "no kill came while a thread was held: the test tested nothing"
    )
    assert patient.states() == before
    patient.end()


@pytest.mark.live
def test_blocked_threads_are_described_and_not_touched(patient: Patient) -> None:
    threads = {thread.tid: thread for thread in api.spin(patient.pid, budget=0.1).threads}
    waits = [thread for thread in threads.values() if thread.wait is not None and thread.steps == 0]
    holder = next(
        t for t in waits if t.wait and t.wait.syscall == "read" and "pipe" in t.wait.summary
    )
    assert f"process {patient.pid}" in holder.reason, "who holds the other end of the pipe"
    locked = next(t for t in waits if t.wait and "big_lock" in t.wait.summary)
    assert f"held by thread {holder.tid}" in locked.reason
    assert any(
        (code.symbol or "").startswith("blocked")
        for code in (locked.wait.stack if locked.wait else ())
    )
    assert locked.kind == "LongWait" and locked.pause_ms == 0


@pytest.mark.live
def test_stopped_and_traced_processes_do_not_hang_it(patient: Patient) -> None:
    pid = patient.pid
    os.kill(pid, signal.SIGSTOP)
    begun = time.monotonic()
    report = api.spin(pid)
    assert time.monotonic() - begun < 5
    assert all("stopped" in thread.reason and not thread.steps for thread in report.threads)
    os.kill(pid, signal.SIGCONT)
    spinner = next(thread for thread in api.spin(pid, budget=0.1).threads if thread.flag)
    with started(
        [sys.executable, "-c", _SEIZE, str(spinner.tid)],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
    ) as tracer:
        assert tracer.stdout is not None and tracer.stdout.readline() == b"seized\n"
        report = api.spin(pid, budget=0.1)
        held = next(thread for thread in report.threads if thread.tid == spinner.tid)
        assert not held.steps and f"process {tracer.pid} traces it already" in held.reason
    patient.end(was_stopped=True)


_SEIZE = """
import ctypes, sys
libc = ctypes.CDLL(None)
assert libc.ptrace(0x4206, int(sys.argv[1]), None, None) == 0
print("seized", flush=True)
sys.stdin.read()
"""


@pytest.mark.live
def test_refusals_have_four_parts() -> None:
    ran = flagfinder("spin", "999999999", timeout=30)
    assert (
        ran.returncode == 69 and "found:" in ran.stderr and "fix:" in ran.stderr and not ran.stdout
    )
    ran = flagfinder("spin", str(os.getpid()), "--thread", "1", timeout=30)
    assert ran.returncode == 69 and "no thread 1" in ran.stderr


@pytest.mark.live
def test_without_permission_the_missing_capability_is_named(patient: Patient) -> None:
    if os.geteuid() != 0:
        live_or_skip("only root can become somebody else")
    # Everything is imported before the user changes, who may not be able to read the installation.
    script = (
        "import os, sys, flagfinder.cli.command as cli; cli.build_parser(); os.setuid(65534); "
        "sys.exit(cli.main(sys.argv[1:]))"
    )
    ran = run([sys.executable, "-P", "-c", script, "spin", str(patient.pid)], timeout=60)
    assert ran.returncode == 77, ran.stderr
    assert (
        "CAP_SYS_PTRACE" in ran.stderr
        and "ptrace_scope" in ran.stderr
        and "Traceback" not in ran.stderr
    )
