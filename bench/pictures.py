# SPDX-License-Identifier: MIT
"""Draws the pictures of the README from a real run: `.venv/bin/python bench/pictures.py`.

The demo's program hangs, and `flagfinder why` is asked. `flagfinder report` makes a page of a
pipeline whose first member is late. Out: docs/pictures/why.svg and docs/pictures/report.png. Needs
a C compiler with OpenMP, chromium, and the rights of `flagfinder events record`.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
FLAGFINDER = [str(Path(sys.executable).with_name("flagfinder"))]
COLUMNS = 100
PAGE = (1280, 860)  # pixels
LATE = "(sleep 3; seq 5) | sort | head -1"


@contextmanager
def silent_producer(scratch: Path) -> Iterator[Path]:
    """A FIFO whose writing end a sleeping process holds."""
    fifo = scratch / "silent.fifo"
    os.mkfifo(fifo)
    with subprocess.Popen(["sh", "-c", f"exec sleep 300 >{fifo}"]) as producer:
        try:
            yield fifo
        finally:
            producer.kill()


def histogram(scratch: Path) -> list[str]:
    """The demo's program, and its first file."""
    program, numbers = scratch / "histogram", scratch / "one.txt"
    source = ROOT / "samples" / "demo" / "histogram.c"
    subprocess.run(["cc", "-O2", "-fopenmp", str(source), "-o", str(program)], check=True)
    numbers.write_text("".join(f"{number}\n" for number in range(1, 20001)))
    return [str(program), str(numbers)]


def draw_terminal(command: list[str], shown: str, picture: Path) -> None:
    """What the command prints in a terminal of COLUMNS columns, as SVG."""
    env = {**os.environ, "COLUMNS": str(COLUMNS)}
    ran = subprocess.run(
        [*command, "--color", "always", "-q"], env=env, capture_output=True, text=True
    )
    if ran.returncode:
        sys.exit(f"{shown}: {ran.stdout}{ran.stderr}")
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ {shown}", style="bold"))
    console.print(Text.from_ansi(ran.stdout.rstrip()))
    picture.write_text(console.export_svg(title="flagfinder"))


def draw_page(page: Path, picture: Path) -> None:
    """The first screen of a page."""
    options = "--headless --no-sandbox --disable-gpu --hide-scrollbars --window-size={},{}"
    profile = f"--user-data-dir={page.parent}/profile"
    quiet = subprocess.DEVNULL
    command = [
        "chromium",
        *options.format(*PAGE).split(),
        profile,
        f"--screenshot={picture}",
        page.as_uri(),
    ]
    subprocess.run(command, check=True, stdout=quiet, stderr=quiet, timeout=60)


def main() -> int:
    PICTURES.mkdir(exist_ok=True)
    # The pictures show its path.
    with tempfile.TemporaryDirectory(prefix="demo-", dir="/tmp") as name:
        scratch = Path(name)
        program = histogram(scratch)
        with silent_producer(scratch) as fifo:
            env = {**os.environ, "OMP_WAIT_POLICY": "active", "OMP_NUM_THREADS": "2"}
            with subprocess.Popen([*program, fifo.name], env=env, cwd=scratch) as hung:
                try:
                    time.sleep(2)  # until it waits
                    pid = str(hung.pid)
                    draw_terminal(
                        [*FLAGFINDER, "why", pid], f"flagfinder why {pid}", PICTURES / "why.svg"
                    )
                finally:
                    hung.kill()
        for words in (
            ["events", "record", "-q", "-o", "run.events", "--", "sh", "-c", LATE],
            ["graph", "build", "-q", "run.events", "-o", "run.graph"],
            ["report", "run.graph", "-o", "run.html"],
        ):
            subprocess.run([*FLAGFINDER, *words], check=True, cwd=scratch)
        draw_page(scratch / "run.html", PICTURES / "report.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
