# SPDX-License-Identifier: MIT
"""`flagfinder spin` on Python: changed sources, other users, and programs that embed it."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from harness import compiled, flagfinder, live_or_skip, run, started
from python_programs import POLLS, PYTHON, of, program, running, spin, whens
from sizes import SOAK


@pytest.mark.live
@pytest.mark.parametrize("change", ["gone", "edited"])
def test_source_that_is_not_the_program(change: str, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(program(POLLS))
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
        program(POLLS).replace("wait(Job())", "threading.Thread(target=wait, args=[Job()]).start()")
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
    script.write_text(program(POLLS))
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
    script.write_text(program(POLLS))
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
        "import sys, flagfinder.cli, flagfinder.interpreters.py_spy as spy\n"
        "from flagfinder.interpreters.which import UnreadableError\n"
        "def none(): raise UnreadableError('py-spy is not installed (`pip install py-spy`)')\n"
        "spy.find_py_spy = none\nsys.exit(flagfinder.cli.entry())"
    )
    with running([PYTHON, script]) as process:
        ran = run([sys.executable, "-P", "-c", hidden, "spin", str(process.pid)], timeout=60)
    assert ran.returncode == 1 and "Traceback" not in ran.stderr
    assert (
        "no Python code could be read: py-spy is not installed (`pip install py-spy`)" in ran.stdout
    )
