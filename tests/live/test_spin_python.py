# SPDX-License-Identifier: MIT
"""`flagfinder spin` on Python programs: which code waits, and what ends it, in the program's own
words.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import flagfinder, need_python_3_11
from python_programs import POLLS, PYTHON, of, program, running, spin, whens
from sizes import in_turn

WAITS = {
    "sleep(0)": (POLLS, "job.done"),
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
