# SPDX-License-Identifier: MIT
"""`flagfinder spin` on Python programs: which code waits, and what ends it, in the program's own
words.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import compiled, flagfinder, live_or_skip, need_python_3_11, run, started
from sizes import SOAK, in_turn

PYTHON = "/usr/bin/python3"

# The main thread waits in `wait`; a line with `awaited` or `pauses` is where.
HEAD = """\
import itertools, queue, sys, threading, time
from concurrent.futures import ThreadPoolExecutor

class Job:
    def __init__(self):
        self.done = False

"""
TAIL = """
print("READY", flush=True)
wait(Job())
"""
WAITS = {
    "sleep(0)": ("while not job.done:\n    time.sleep(0)", "job.done"),
    "sleep(0.01)": ("while not job.done:\n    time.sleep(0.01)", "job.done"),
    "busy": ("while not job.done:\n    pass", "job.done"),
    "counted": ("n = 0\nwhile job.done is False:\n    n += 1", "job.done is not False"),
    "break": ("while True:\n    if job.done: break", "job.done"),
    "event": (
        "event = threading.Event()\nwhile not event.is_set():\n    time.sleep(0)",
        "event.is_set()",
    ),
    "queue": ("q = queue.Queue()\nwhile q.empty():\n    time.sleep(0.001)", "not q.empty()"),
    "mapping": (
        "state = {'phase': 1}\nwhile state['phase'] != 3: time.sleep(0)",
        "state['phase'] == 3",
    ),
    "thread": (
        "t = threading.Thread(target=threading.Event().wait, daemon=True)\nt.start()\n"
        "while t.is_alive():\n    time.sleep(0.002)",
        "not t.is_alive()",
    ),
    "pool": (
        "pool = ThreadPoolExecutor(2)\nfuture = pool.submit(threading.Event().wait)\n"
        "while not future.done():\n    time.sleep(0.001)",
        "future.done()",
    ),
    "nested": ("while not job.done:\n    for _ in range(20000):\n        pass", "job.done"),
    "generator": (
        "def looks():\n    while not job.done:\n        time.sleep(0)\n    yield 1\nnext(looks())",
        "job.done",
    ),
}


def program(body: str) -> str:
    return HEAD + "def wait(job):\n" + "".join(f"    {line}\n" for line in body.splitlines()) + TAIL


@contextlib.contextmanager
def running(command: list[str | Path], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """The program, once it has said that it is about to wait."""
    with started(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        text=True,
        **options,
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "READY\n"
        yield process
        assert process.poll() is None, "the program did not survive"


def spin(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """The threads. The exit code says whether one of them has an answer: a flag, or a loop with a
    confidence.
    """
    ran = flagfinder("spin", "--json", str(process.pid), timeout=90)
    threads: list[dict[str, Any]] = json.loads(ran.stdout)["threads"]
    loops = [
        thread["python"]["loop"]
        for thread in threads
        if thread["python"] and thread["python"]["loop"]
    ]
    answered = any(thread["flags"] for thread in threads) or any(
        loop["confidence"] for loop in loops
    )
    assert ran.returncode == (0 if answered else 1), ran.stderr + ran.stdout
    return threads


def of(process: subprocess.Popen[str], threads: list[dict[str, Any]]) -> dict[str, Any]:
    """The Python code of the main thread."""
    code: dict[str, Any] = next(thread for thread in threads if thread["tid"] == process.pid)[
        "python"
    ]
    return code


def whens(code: dict[str, Any]) -> list[str]:
    assert code["loop"] is not None, code
    return [way["when"] for way in code["loop"]["exits"]]


@pytest.mark.live
@pytest.mark.parametrize("name", in_turn(WAITS, of=4))
def test_what_ends_the_wait(name: str, tmp_path: Path) -> None:
    body, when = WAITS[name]
    script = tmp_path / "program.py"
    script.write_text(program(body))
    with running([PYTHON, script]) as process:
        code = of(process, spin(process))
    loop = code["loop"]
    assert whens(code) == [when], code
    assert (loop["kind"], loop["file"]) == ("waits", str(script))
    line = next(
        n
        for n, text in enumerate(script.read_text().splitlines(), 1)
        if text.strip() == loop["source"][0]
    )
    assert loop["line"] == line
    assert code["frames"][-1]["function"] == "<module>" and any(
        f["function"] == "wait" for f in code["frames"]
    )
    # A machine that is too busy for enough looks has less to found it on.
    assert loop["confidence"] == (0.8 if code["seen"] >= 6 else None)


@pytest.mark.live
def test_the_object_is_named_with_its_address(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        program("print(hex(id(job)), file=sys.stderr, flush=True)\n" + WAITS["sleep(0)"][0])
    )
    with (
        (tmp_path / "address").open("w+") as told,
        running([PYTHON, script], stderr=told) as process,
    ):
        code = of(process, spin(process))
        told.seek(0)
        address = told.read().strip()
    assert code["loop"]["values"] == [
        {"name": "job", "value": f"<Job at {address}>", "address": address}
    ]


@pytest.mark.live
@pytest.mark.parametrize("name", ["sleep(0)", "sleep(0.01)", "busy", "break", "counted"])
def test_the_word_behind_an_attribute(name: str, tmp_path: Path) -> None:
    """CPython 3.11 keeps an object's attributes in an array, to which a pointer four words before
    the object leads.
    """
    need_python_3_11(PYTHON)
    told_first = (
        "import ctypes\n"
        "slot = ctypes.cast(id(job) - 32, ctypes.POINTER(ctypes.c_void_p))[0]\n"
        "print(hex(slot), file=sys.stderr, flush=True)\n"
    )
    script = tmp_path / "program.py"
    script.write_text(program(told_first + WAITS[name][0]))
    with (
        (tmp_path / "address").open("w+") as told,
        running([PYTHON, script], stderr=told) as process,
    ):
        flags = spin(process)[0]["flags"]
        told.seek(0)
        address = told.read().strip()
    assert [(f["address"]["spin"], f["size"], f["access_path"]) for f in flags[:1]] == [
        (address, 8, "job.done")
    ], flags
    assert flags[0]["value"]["spin_symbol"] == "_Py_FalseStruct"


@pytest.mark.live
def test_a_thread_that_waits_for_its_turn_is_seen_in_copies(tmp_path: Path) -> None:
    """Two others compute, and have the interpreter's lock nearly all the time. On a busy machine a
    turn may be over before it is seen, so there are several looks.
    """
    computes = "def compute():\n    while True: sum(range(1000))\n"
    starts = "for _ in range(2): threading.Thread(target=compute, daemon=True).start()\n"
    script = tmp_path / "program.py"
    script.write_text(computes + program(starts + WAITS["sleep(0)"][0]))
    vias: list[str] = []
    with running([PYTHON, script]) as process:
        while "replica" not in vias and len(vias) < 8:
            thread = next(thread for thread in spin(process) if thread["tid"] == process.pid)
            assert whens(thread["python"]) == ["job.done"]
            vias.append(thread["via"])
    assert vias[-1] == "replica", thread["via_reason"]
    assert [flag["access_path"] for flag in thread["flags"][:1]] == ["job.done"], thread["reason"]


@pytest.mark.live
def test_beside_threads_that_compute(tmp_path: Path) -> None:
    """Of these the code says that nothing ends their loops, so that no word is named for them. The
    interpreter's lock, which all wait for in turn, is not what one of them hangs for.
    """
    computes = (
        "def loops():\n    n = 1\n    while True:\n        n = n * 7 % 1000003\n"
        "def recurses(n):\n    return n if n < 2 else recurses(n - 1) + recurses(n - 2)\n"
        "threading.Thread(target=loops, daemon=True).start()\n"
        "threading.Thread(target=recurses, args=[60], daemon=True).start()\n"
    )
    script = tmp_path / "program.py"
    script.write_text(program(WAITS["mapping"][0]).replace("\nprint(", computes + "\nprint("))
    with running([PYTHON, script]) as process:
        first, *others = spin(process)
    assert first["tid"] == process.pid and whens(first["python"]) == ["state['phase'] == 3"]
    assert [thread["flags"] for thread in others] == [[], []]


@pytest.mark.live
def test_the_terminal_says_it_where_the_flag_would_be(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(program(WAITS["sleep(0.01)"][0]))
    with running([PYTHON, script]) as process:
        ran = flagfinder("spin", str(process.pid), timeout=90)
    assert "Traceback" not in ran.stdout + ran.stderr
    assert "ends when  job.done (line 9, the loop's test)" in ran.stdout, ran.stdout
    assert f"{script}:10 wait" in " ".join(ran.stdout.split())


@pytest.mark.live
@pytest.mark.parametrize(
    ("body", "when"),
    [
        ("lock = threading.Lock(); lock.acquire(); lock.acquire()", None),
        ("queue.Queue().get()", "self._qsize()"),
        ("while not job.done: time.sleep(100)", "job.done"),
    ],
    ids=["lock", "queue", "long sleep"],
)
def test_a_blocked_thread_has_its_stack(body: str, when: str | None, tmp_path: Path) -> None:
    """And the loop that it pauses in; but as nobody saw that go round, it is no answer."""
    script = tmp_path / "program.py"
    script.write_text(program(body))
    with running([PYTHON, script]) as process:
        threads = spin(process)
    code = of(process, threads)
    assert threads[0]["class"] == "LongWait"
    assert {"function": "wait", "file": str(script), "line": 9} in code["frames"]
    if when is None:
        assert code["loop"] is None
    else:
        assert whens(code) == [when] and code["loop"]["confidence"] is None


@pytest.mark.live
def test_a_loop_that_is_entered_anew_is_not_where_it_waits(tmp_path: Path) -> None:
    """`wait` of multiprocessing loops until its time is over; who calls it again and again is the
    one that waits.
    """
    script = tmp_path / "program.py"
    body = "q = multiprocessing.Queue()\nwhile True:\n    try:\n"
    body += "        q.get(timeout=0.001)\n        break\n"
    script.write_text("import multiprocessing\n" + program(body + "    except queue.Empty: pass"))
    with running([PYTHON, script]) as process:
        code = of(process, spin(process))
    assert whens(code) == ["q.get(timeout=0.001) does not raise queue.Empty"]
    assert (code["loop"]["function"], code["loop"]["confidence"]) == ("wait", None)


@pytest.mark.live
def test_a_thread_whose_loop_ends_by_itself_is_innocent(tmp_path: Path) -> None:
    """No copy of it is looked at, and the thread that waits comes first."""
    script = tmp_path / "program.py"
    body = "def compute():\n    for n in range(10**12):\n        n * n\n"
    body += "threading.Thread(target=compute, daemon=True).start()\n"
    body += "while not job.done:\n    time.sleep(0)"
    script.write_text(program(body))
    with running([PYTHON, script]) as process:
        ran = flagfinder("spin", "--json", str(process.pid), timeout=90)
    waits, computes = json.loads(ran.stdout)["threads"]
    assert (waits["tid"], whens(waits["python"])) == (process.pid, ["job.done"])
    assert (computes["class"], computes["flags"], computes["via"]) == ("LongRunning", [], None)


@pytest.mark.live
def test_who_holds_the_interpreters_lock(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import re, threading, time\n"
        "def search():\n    print('READY', flush=True)\n    re.match('(a+)+$', 'a' * 40 + 'b')\n"
        "threading.Thread(target=search).start()\ntime.sleep(1000)\n"
    )
    with running([PYTHON, script]) as process:
        ran = flagfinder("spin", "--json", str(process.pid), timeout=90)
    report = json.loads(ran.stdout)
    (other,) = [t for t in report["threads"] if t["tid"] != process.pid]
    assert other["python"]["frames"][1]["function"] == "search"
    if other["python"]["looks"] >= 6:
        assert any(
            f"thread {other['tid']} held the interpreter's lock (GIL)" in note
            for note in report["notes"]
        )


@pytest.mark.live
def test_a_server_waits_for_no_condition(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import http.server\n"
        "server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), "
        "http.server.BaseHTTPRequestHandler)\n"
        "print('READY', flush=True)\nprint(server.server_port, flush=True)\n"
        "server.serve_forever(0.01)\n"
    )
    with running([PYTHON, script], stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with contextlib.suppress(urllib.error.HTTPError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30)
        code = of(process, spin(process))
    assert code["loop"] is None or (code["loop"]["kind"], code["loop"]["confidence"]) == (
        "works",
        None,
    )


@pytest.mark.live
def test_an_event_loop_waits_for_no_condition(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import asyncio\nasync def main():\n    print('READY', flush=True)\n    while True:\n"
        "        await asyncio.sleep(0.001)\nasyncio.run(main())\n"
    )
    with running([PYTHON, script]) as process:
        code = of(process, spin(process))
    assert code["loop"] is None or code["loop"]["confidence"] is None, code


@pytest.mark.live
@pytest.mark.parametrize("change", ["gone", "edited"])
def test_source_that_is_not_the_program(change: str, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(program(WAITS["sleep(0)"][0]))
    with running([PYTHON, script]) as process:
        if change == "gone":
            script.unlink()
        else:
            script.write_text("while other:\n    pass\n" * 20)
        code = of(process, spin(process))
    expected = {
        "gone": f"the source {script} can't be read",
        "edited": f"{script} has changed since the program was started",
    }
    assert (code["loop"], code["note"]) == (None, expected[change])
    assert code["frames"][0]["function"] == "wait"


@pytest.mark.live
def test_all_interpreters(tmp_path: Path) -> None:
    """Those of pyenv, where it is installed, and a virtual environment's; each waits in a second
    thread.
    """
    script = tmp_path / "program.py"
    script.write_text(
        program(WAITS["sleep(0)"][0]).replace(
            "wait(Job())", "threading.Thread(target=wait, args=[Job()]).start()"
        )
    )
    environment = tmp_path / "venv"
    assert (
        run([sys.executable, "-m", "venv", "--without-pip", environment], timeout=120).returncode
        == 0
    )
    pythons = [environment / "bin" / "python"]
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    pythons += [
        python for n in range(8, 15) for python in root.glob(f"versions/3.{n}.*/bin/python3.{n}")
    ]
    if not SOAK:
        pythons = pythons[:1] + pythons[-1:]
    for python in pythons:
        with running([python, script]) as process:
            threads = spin(process)
        waiting = [t["python"] for t in threads if t["tid"] != process.pid]
        assert [whens(code) for code in waiting] == [["job.done"]], (python, threads)


@pytest.mark.live
def test_another_users_program(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        live_or_skip("only root starts programs as somebody else")
    script = tmp_path / "program.py"
    script.write_text(program(WAITS["sleep(0)"][0]))
    with (
        script.open() as source,
        running([PYTHON, "-c", source.read()], user=65534, group=65534, cwd="/") as process,
    ):
        code = of(process, spin(process))
    assert (whens(code), code["note"]) == (["job.done"], None)
    assert [frame["function"] for frame in code["frames"]] == ["wait", "<module>"]


@pytest.mark.live
def test_a_program_that_embeds_python(tmp_path: Path) -> None:
    built = tmp_path / "embeds"
    source = tmp_path / "embeds.c"
    script = tmp_path / "inner.py"
    script.write_text(program(WAITS["sleep(0)"][0]))
    source.write_text(
        "#include <stdio.h>\n"
        "void Py_Initialize(void);\n"
        "int PyRun_SimpleFileExFlags(FILE *, const char *, int, void *);\n"
        "int main(int n, char **v) {\n"
        "  Py_Initialize();\n"
        '  return PyRun_SimpleFileExFlags(fopen(v[1], "r"), v[1], 1, 0);\n'
        "}\n"
    )
    library = next(Path("/usr/lib/x86_64-linux-gnu").glob("libpython3.*.so.1.0"), None)
    if library is None or shutil.which("gcc") is None:
        live_or_skip("no shared libpython, or no compiler")
    compiled(built, source, library)
    with running([built, script]) as process:
        code = of(process, spin(process))
    assert whens(code) == ["job.done"]


@pytest.mark.live
def test_other_programs_have_none() -> None:
    with started(["sleep", "60"]) as process:
        ran = flagfinder("spin", "--json", str(process.pid), timeout=60)
    report = json.loads(ran.stdout)
    assert "python" not in report["threads"][0] and not any(
        "Python" in note for note in report["notes"]
    )


@pytest.mark.live
def test_without_py_spy_one_line_says_so(tmp_path: Path) -> None:
    """An interpreter that can't be read is no failure of the whole."""
    script = tmp_path / "program.py"
    script.write_text(program("threading.Event().wait()"))
    hidden = (
        "import sys, flagfinder.cli, flagfinder.live.interpreters.py_spy as spy\n"
        "def none(): raise spy.UnreadableError('py-spy is not installed (`pip install py-spy`)')\n"
        "spy.find_py_spy = none\nsys.exit(flagfinder.cli.entry())"
    )
    with running([PYTHON, script]) as process:
        ran = run([sys.executable, "-P", "-c", hidden, "spin", str(process.pid)], timeout=60)
    assert ran.returncode == 1 and "Traceback" not in ran.stderr
    assert (
        "no Python code could be read: py-spy is not installed (`pip install py-spy`)" in ran.stdout
    )
