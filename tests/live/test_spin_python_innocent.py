# SPDX-License-Identifier: MIT
"""`flagfinder spin` on Python programs that wait for no condition."""

from __future__ import annotations

import contextlib
import json
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from harness import flagfinder
from python_programs import PYTHON, of, program, running, spin, whens


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
