# SPDX-License-Identifier: MIT
"""`flagfinder why` on planted hangs: the root is the planted cause, and no innocent thread."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
import xml.etree.ElementTree as xml
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import (
    assert_four_parts,
    browse,
    flagfinder,
    live_or_skip,
    need_python_3_11,
    needs_root,
    started,
    wait_for_rounds,
    wait_until,
)
from planted import SOURCES, Truth, assert_true, built, planted, why
from sizes import in_turn

PYTHON = "/usr/bin/python3"
# Two links and more, unless one is what there is to say.
SCENARIOS = {
    "lock_of_a_sleeper": 2,
    "ab_ba": 2,
    "lost_wakeup": 2,
    "wakeup_before_the_wait": 2,
    "signal_behind_the_join": 2,
    "lost_wakeup_beside_a_heartbeat": 2,
    "lost_wakeup_beside_a_limited_wait": 2,
    "any_of_two": 1,
    "starved_pool": 2,
    "polled_flag": 1,
    "held_writer": 1,
    "read_table": 1,
    "starved": 1,
    "unarmed_timer": 1,
    "blocked_signal": 1,
    "owner_ended": 1,
    "left_locked": 1,
    "file_locks": 2,
    "open_file_lock": 1,
    "asks_file_lock": 2,
    "asks_lock_file": 2,
    "child_reads_fifo": 2,
    "grandchild_opens_fifo": 3,
    "fork_without_holder": 2,
    "execs_beside_a_traced_thread": 3,
    "shared_lock": 1,
    "shared_word": 1,
    "stopped_sharer": 1,
    "robust_lock": 1,
    "stopped_peer": 2,
    "unsent_message": 2,
    "unaccepted": 2,
    "tcp_server": 3,
    "lost_message": 2,
    "proxy": 2,
    "full_pipe": 2,
    "own_fifo": 1,
    "dead_peer": 1,
    "circle_of_pipes": 2,
    "asks_pipe": 1,
    "polls_peer": 1,
    "asks_child": 1,
    "message_queue": 1,
    "unread_terminal": 2,
    "output_of_a_daemon": 1,
    "signal_of_a_thread": 2,
    "condition_of_a_reader": 2,
    "semaphore_of_a_poller": 2,
    "pair_of_a_reader": 2,
    "pair_of_two": 2,
    "semaphore_of_a_process": 2,
    "semaphore_of_a_handler": 1,
    "limited_condition": 1,
    "pipe_that_a_child_has": 2,
    "shared_condition": 3,
    "pipe_of_two_children": 2,
    "job_done_before_the_wait": 1,
    "pipe_of_two_servers": 2,
    "eventfd_of_a_child": 1,
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("why"))


@pytest.mark.live
@pytest.mark.parametrize("name", in_turn(SCENARIOS))
def test_the_root_is_the_planted_cause(name: str, program: Path, tmp_path: Path) -> None:
    with planted(program, name, tmp_path) as (process, truth):
        report = why(process.pid)
    assert_true(report, truth)
    assert len(report["links"]) >= SCENARIOS[name], report["links"]
    if truth.kind == "unknown":
        assert report["links"][-1]["owed_by"] is None


@pytest.mark.live
@pytest.mark.parametrize(
    "name",
    [
        "condition_of_a_reader",
        "semaphore_of_a_poller",
        "pair_of_a_reader",
        "semaphore_of_a_process",
    ],
)
def test_a_copy_of_the_owner_ends_the_wait(name: str, program: Path, tmp_path: Path) -> None:
    """Among bystanders it is proved which thread owes what no lock's word tells."""
    with planted(program, name, tmp_path) as (process, truth):
        report = why(process.pid)
    first = report["links"][0]
    assert (first["known"], first["owed_by"]["tid"]) == ("proved", truth.tid), report["story"]
    assert re.match("its `(read|poll)` on fd ", first["supposed"][0]), first["supposed"]


@pytest.mark.live
def test_a_woken_thread_that_finds_what_it_asks_for_owes_the_wake_up(
    program: Path, tmp_path: Path
) -> None:
    """Each link of the circle is shown by a copy that takes the other way behind its wait."""
    with planted(program, "conditions_that_do_not_hold", tmp_path) as (process, truth):
        report = why(process.pid)
    assert_true(report, truth)
    assert not report["root"]["assumed"], report["story"]
    of_circle = report["links"][-2:]
    assert [link["known"] for link in of_circle] == ["proved"] * 2, report["story"]


@pytest.mark.live
@needs_root("a pid namespace needs root")
def test_the_child_of_a_process_in_nested_pid_namespaces_is_known() -> None:
    """The child has one id for itself, another one for its parent, and a third one here."""
    nested = ["unshare", "-pf", "unshare", "-pf", "sh", "-c", "sleep 1000; :"]
    with started(nested) as process:
        wait_until(process, lambda: why(process.pid)["root"]["kind"] == "timer", seconds=20)


@pytest.mark.live
@pytest.mark.parametrize(
    ("name", "is_assumed"), [("lost_wakeup", True), ("signal_behind_the_join", False)]
)
def test_a_circle_is_certain_where_each_link_is_shown(
    name: str, is_assumed: bool, program: Path, tmp_path: Path
) -> None:
    """A copy of the first thread signals behind its join; without it, it is the last one left."""
    with planted(program, name, tmp_path) as (process, _):
        report = why(process.pid)
    assert report["root"]["kind"] == "deadlock", report["story"]
    assert report["root"]["assumed"] == is_assumed, report["story"]
    assert report["links"][-1]["known"] == ("assumed" if is_assumed else "proved")


@pytest.mark.live
@pytest.mark.parametrize(
    "name", ["lost_wakeup_beside_a_heartbeat", "lost_wakeup_beside_a_limited_wait"]
)
def test_threads_that_wait_for_time_are_no_candidates(
    name: str, program: Path, tmp_path: Path
) -> None:
    with planted(program, name, tmp_path) as (process, _):
        report = why(process.pid)
    told = "waits for time, and no copy ended the wait"
    assert told in report["root"]["what"], report["story"]


@pytest.mark.live
def test_a_circle_is_not_certain_beside_a_thread_that_may_read_what_no_copy_did(
    program: Path, tmp_path: Path
) -> None:
    with planted(program, "signal_behind_the_join_beside_a_reader", tmp_path) as (process, _):
        root = why(process.pid)["root"]
    assert root["kind"] == "unknown" or root["assumed"], root


@pytest.mark.live
def test_where_nobody_is_left_each_thread_is_told(program: Path, tmp_path: Path) -> None:
    with planted(program, "lost_wakeup", tmp_path) as (process, _):
        report = why(process.pid)
    what = report["root"]["what"]
    assert re.match("no thread is left that could end the wait of thread ", what), what
    assert f"thread {process.pid} (hangs) waits for " in what


@pytest.mark.live
def test_code_of_another_process_writes_the_shared_word(program: Path, tmp_path: Path) -> None:
    with planted(program, "shared_word", tmp_path) as (process, truth):
        report = why(process.pid)
    first = report["links"][0]
    assert (first["waits_for"]["kind"], first["known"]) == ("flag", "by-code"), report["story"]
    assert (first["owed_by"]["pid"], first["owed_by"]["code"]["symbol"].partition("+")[0]) == (
        truth.pid,
        "shared_word",
    )


PYTHON_POLLS = """
import threading, time
done = []
def reader():
    time.sleep(100000)
    done.append(1)
threading.Thread(target=reader, daemon=True).start()
print("polls", flush=True)
while not done:
    time.sleep(0.001)
"""


def why_of_script(text: str) -> dict[str, Any]:
    """Of one that the command line holds."""
    command = [PYTHON, "-Ic", text]
    with started(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"polls\n"
        wait_for_rounds(process)
        return why(process.pid)


@pytest.mark.live
def test_a_script_on_the_command_line_waits_for_the_thread_whose_code_answers() -> None:
    need_python_3_11(PYTHON)
    report = why_of_script(PYTHON_POLLS)
    assert report["root"]["kind"] == "timer", report["story"]
    first = report["links"][0]
    assert first["waits_for"]["name"] == "`done` (<module> at <string>:9)"
    assert first["owed_by"]["tid"] == report["root"]["tid"] != report["pid"]
    assert (first["known"], "<string>:6" in first["reason"]) == ("by-code", True)


@pytest.mark.live
def test_a_script_that_polls_does_not_wait_for_its_own_sleep() -> None:
    report = why_of_script(f"exec({PYTHON_POLLS!r})")
    root = report["root"]
    # At some moments the interpreter's own code tells of the thread that is to fill the list.
    if root["kind"] == "timer":
        assert root["tid"] != report["pid"], report["story"]
    else:
        assert root["kind"] == "unknown", report["story"]
        assert "sleeps again and again" in root["what"]


@pytest.mark.live
def test_nor_does_one_that_a_shell_waits_for() -> None:
    text = "exec('import time\\nprint(0, flush=True)\\nwhile time.time(): time.sleep(0.001)')"
    command = ["sh", "-c", '"$@"; true', "sh", PYTHON, "-Ic", text]
    with started(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"0\n"
        # The shell's own account tells nothing of the child's rounds.
        time.sleep(0.5)
        report = why(process.pid)
    assert report["root"]["kind"] == "unknown", report["story"]
    assert "sleeps again and again" in report["root"]["what"]


@pytest.mark.live
@pytest.mark.parametrize("asked", in_turn(["attribute", "global", "list", "event", "lambda"]))
def test_a_script_waits_for_the_thread_whose_code_answers(asked: str, tmp_path: Path) -> None:
    with polling(asked, tmp_path) as (process, said):
        blamed = int(re.findall(r"BLAMED (\d+)", said)[0])
        report = why(process.pid)
    assert report["root"]["kind"] == "timer", report["story"]
    assert report["root"]["tid"] == blamed, report["story"]
    first = report["links"][0]
    assert "polled.py" in first["waits_for"]["name"]
    assert (first["owed_by"]["tid"], first["known"]) == (blamed, "by-code")


@pytest.mark.live
def test_a_script_whose_question_nobody_answers(tmp_path: Path) -> None:
    with polling("nobody", tmp_path) as (process, _):
        report = why(process.pid)
    assert report["root"]["kind"] == "unknown", report["story"]
    assert "never_ready" in report["root"]["what"]


@contextlib.contextmanager
def polling(asked: str, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The script that polls in Python, and what it said."""

    def is_ready(said: str) -> bool:
        return "STARTED" in said and ("BLAMED" in said) == (asked != "nobody")

    with script("polled.py", asked, folder, is_ready) as (process, said):
        wait_for_rounds(process)
        yield process, said


@contextlib.contextmanager
def script(
    name: str, how: str, folder: Path, is_ready: Callable[[str], bool]
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A script of `why/`, and what it said once it is ready."""
    need_python_3_11(PYTHON)
    out = folder / "stdout"
    with (
        out.open("wb") as stdout,
        started([PYTHON, SOURCES / name, how], stdout=stdout) as process,
    ):
        wait_until(process, lambda: is_ready(out.read_text()))
        yield process, out.read_text()


@pytest.mark.live
def test_a_script_waits_for_a_queue_that_a_thread_would_fill(tmp_path: Path) -> None:
    with blocked("queue", tmp_path) as (process, blamed):
        report = why(process.pid)
    assert (report["root"]["kind"], report["root"]["tid"]) == ("timer", blamed), report["story"]
    first = report["links"][0]
    assert first["waits_for"]["name"].startswith("`done.get()` (<module> at blocked.py:")
    assert (first["owed_by"]["tid"], first["known"]) == (blamed, "by-code")


@pytest.mark.live
def test_a_script_takes_two_locks_in_two_orders(tmp_path: Path) -> None:
    with blocked("locks", tmp_path) as (process, one):
        report = why(process.pid, "--thread", str(one))
        whole = why(process.pid)
    for story in (report, whole):
        assert story["root"]["kind"] == "deadlock", story["story"]
    names = [link["waits_for"]["name"].partition(" (")[0] for link in report["links"]]
    assert names == ["`with OTHER`", "`with ONE`"], report["story"]
    assert [link["known"] for link in report["links"]] == ["by-code", "by-code"]
    assert "`thread.join()`" in whole["links"][0]["waits_for"]["name"], whole["story"]


@contextlib.contextmanager
def blocked(how: str, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The script that blocks in Python, and the thread that it blames."""
    with script("blocked.py", how, folder, lambda said: said.endswith("\n")) as (process, said):
        time.sleep(0.5)  # it is about to wait itself
        yield process, int(said.split()[1])


@pytest.mark.live
def test_a_frozen_process_is_told_with_its_group(program: Path, tmp_path: Path) -> None:
    with (
        frozen_group() as (group, freeze),
        planted(program, "frozen_peer", tmp_path) as (process, truth),
    ):
        (group / "cgroup.procs").write_text(str(truth.pid))
        freeze(True)
        try:
            report = why(process.pid)
        finally:
            freeze(False)
    assert_true(report, truth)
    assert group.name in report["root"]["what"]


@contextlib.contextmanager
def frozen_group() -> Iterator[tuple[Path, Any]]:
    """A new control group, and how to freeze it."""
    for root, file, states in (
        ("/sys/fs/cgroup", "cgroup.freeze", ("0", "1")),
        ("/sys/fs/cgroup/unified", "cgroup.freeze", ("0", "1")),
        ("/sys/fs/cgroup/freezer", "freezer.state", ("THAWED", "FROZEN")),
    ):
        group = Path(root) / f"ff-why-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if (group / file).exists():
                yield group, lambda on, path=group / file, words=states: path.write_text(words[on])
                return
        finally:
            _remove(group)
    live_or_skip("no control group can be made and frozen here")


def _remove(group: Path) -> None:
    for _ in range(100):
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.05)


@pytest.mark.live
@needs_root("a network namespace needs root")
def test_a_tcp_peer_in_another_network_namespace_is_found(tmp_path: Path) -> None:
    """Both ends left the namespace that their connection is in."""
    script = tmp_path / "ends.py"
    script.write_text(
        "import ctypes, os, signal, socket\n"
        "def leave():\n"
        "    assert ctypes.CDLL(None).unshare(0x40000000) == 0\n"
        "listener = socket.create_server(('127.0.0.1', 0))\n"
        "if (child := os.fork()) == 0:\n"
        "    connection, _ = listener.accept()\n"
        "    leave()\n"
        "    os.kill(os.getpid(), signal.SIGSTOP)\n"
        "client = socket.create_connection(listener.getsockname())\n"
        "listener.close()\n"
        "leave()\n"
        "print('TRUTH stopped', child, child, flush=True)\n"
        "client.recv(1)\n"
    )
    out = tmp_path / "stdout"
    with out.open("wb") as stdout, started(["python3", script], stdout=stdout) as process:
        wait_until(process, lambda: out.read_text().endswith("\n"))
        time.sleep(0.3)
        report = why(process.pid)
    assert_true(report, Truth("stopped", int(out.read_text().split()[2]), None))
    assert report["links"][0]["waits_for"]["name"].startswith("recvfrom on fd 4, TCP 127.0.0.1:")


@pytest.mark.live
def test_the_page_draws_threads_and_shows_evidence_on_a_click(
    program: Path, tmp_path: Path
) -> None:
    page = tmp_path / "why.html"
    with planted(program, "stopped_peer", tmp_path) as (process, truth):
        ran = flagfinder("why", "--html", str(page), str(process.pid), timeout=60)
    assert ran.returncode == 0, ran.stderr
    text = page.read_text()
    assert not re.findall(r"""(?:src|href)\s*=|url\(["']?(?!#)|@import|https?://""", text)
    clicks = tmp_path / "clicks.html"
    click = (
        "<script>document.querySelector('.arrow').dispatchEvent(new Event('click'))</script></body>"
    )
    clicks.write_text(text.replace("</body>", click))
    dom = browse(clicks, "--dump-dom", "--virtual-time-budget=2000")
    drawing = xml.fromstring(re.search(r"<svg.*?</svg>", dom, re.DOTALL)[0])  # type: ignore[index]
    texts = [element.text for element in drawing.iter("div")]
    assert f"process {truth.pid} (hangs)" in texts
    assert f"thread {truth.pid} (hangs)" in texts
    arrows = [group for group in drawing.iter("g") if "arrow" in (group.get("class") or "")]
    assert [group.get("class") for group in arrows] == ["arrow chosen", "arrow"]
    assert re.findall(r'<details id="link-(\d)" open', dom) == ["0"]


@pytest.mark.live
def test_the_chain_may_begin_with_any_thread(program: Path, tmp_path: Path) -> None:
    with planted(program, "lock_of_a_sleeper", tmp_path) as (process, truth):
        report = why(process.pid, "--thread", str(truth.tid))
        told = flagfinder("why", str(process.pid), timeout=60)
    assert report["root"]["tid"] == truth.tid
    assert [link["waiter"]["tid"] for link in report["links"]] == [truth.tid]
    assert told.returncode == 0
    lines = told.stdout.splitlines()
    assert lines[0].startswith("waits for a timer")
    assert sum("[seen]" in line for line in lines) >= 2
    assert [line[:6] for line in lines[-2:]] == ["next: ", "[seen]"], "the marks come last"


@pytest.mark.live
@pytest.mark.parametrize(
    "command",
    [["/bin/dash", "-c", "sleep 1000 & wait"], ["timeout", "1000", "sleep", "1000"]],
    ids=["dash", "timeout"],
)
def test_a_process_that_sleeps_until_a_child_ends_waits_for_it(command: list[str]) -> None:
    """They sleep in rt_sigsuspend, which names no child."""
    with started(command) as process:
        wait_until(
            process,
            lambda: len(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()) > 0,
        )
        wait_until(
            process, lambda: "S (sleeping)" in Path(f"/proc/{process.pid}/status").read_text()
        )
        report = why(process.pid)
    assert [link["waits_for"]["kind"] for link in report["links"]] == ["child", "timer"], report[
        "story"
    ]
    assert report["links"][0]["known"] == "by-code"
    assert (report["root"]["kind"], report["root"]["name"]) == ("timer", "sleep")


@pytest.mark.live
def test_the_child_of_a_looping_shell_is_not_blamed_for_its_end(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    loop = f": > '{begun}'; while [ ! -e '{tmp_path}/never' ]; do sleep 0.05; done"
    with started(["/bin/dash", "-c", loop]) as process:
        wait_until(process, begun.exists)
        report = why(process.pid)
    assert report["root"]["kind"] != "ended", report["story"]
    [link] = report["links"]
    assert "/never' ]` (-c:1)" in link["waits_for"]["name"] and link["known"] == "by-code"


@pytest.mark.live
def test_what_a_shell_asks_between_two_sleeps_is_told_by_its_script(tmp_path: Path) -> None:
    script = tmp_path / "wait.sh"
    begun = tmp_path / "begun"
    script.write_text(f"touch {begun}\nuntil grep -q up state 2>/dev/null; do\n  sleep 1\ndone\n")
    with started(["timeout", "1000", "bash", script], cwd=tmp_path) as process:
        wait_until(process, begun.exists)
        report = why(process.pid)
    asks = "`until grep -q up state 2>/dev/null` (wait.sh:2)"
    assert report["links"][-1]["waits_for"]["name"] == asks, report["story"]
    assert (
        report["root"]["what"]
        == f"its script asks {asks} again and again, with `sleep 1` in between"
    )


def test_a_process_that_is_not_there_is_told() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    ran = flagfinder("why", str(ended.pid), timeout=60)
    assert ran.returncode == 69
    assert_four_parts(ran.stderr, str(ended.pid))
