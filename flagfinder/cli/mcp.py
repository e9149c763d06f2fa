# SPDX-License-Identifier: MIT
"""``flagfinder mcp``: the verbs that look at processes, as tools of an agent. In: requests of the
Model Context Protocol on stdin. Out: on stdout what the verbs print with ``--json``.

Each tool is a command of its own, with that verb's limits of time and rights: this process looks at
nothing and holds nobody.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable
from typing import Any

from flagfinder import _core
from flagfinder.cli.common import EXIT_FOUND, VERBS, Subparsers, add_verb
from flagfinder.report.terminal import Terminal
from flagfinder.shared.errors import UsageError
from flagfinder.shared.extra import need
from flagfinder.shared.start import python

_EXAMPLES = """\
  flagfinder mcp                 for the settings of an agent: the command of a server on stdio
  flagfinder mcp --allow-poke    also what starts commands or changes a process: guard, poke

Needs `pip install 'flagfinder[mcp]'`. The tools why, spin, core and stacks change nothing; each
answers with the object that the verb prints with --json.
exit codes: 0 the agent is done; 69 no package mcp"""
_INSTRUCTIONS = """\
Says why a Linux process hangs or burns a core. Begin with `why`: `story` has the answer, `root` is
the end of the chain of waits, and `at` of a link the line of the program's own code. `assumed` and
`unknown` are no facts. `spin` tells of a busy loop which word it polls."""
_REMAINS = 10.0  # s, beside the time that the verb itself is given

Answer = dict[str, Any]


def add_parser(subparsers: Subparsers) -> None:
    parser = add_verb(subparsers, "mcp", VERBS["mcp"], _EXAMPLES, run)
    parser.add_argument(
        "--allow-poke",
        action="store_true",
        help="also offer `guard`, which runs a command, and `poke`, which writes into a process",
    )


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    del terminal
    if options.json or options.json_file is not None:
        raise UsageError(
            "A server has no one answer", "--json", "Leave it out: each tool answers with JSON."
        )
    server(options.allow_poke).run()
    return EXIT_FOUND


def server(allow_poke: bool) -> Any:
    """The server, not yet running. Raises UnavailableError without the package."""
    what = "There is no server for agents without the package mcp"
    package = need("mcp.server.mcpserver", "mcp", what, "All other verbs work.")
    types = need("mcp.types", "mcp", what, "All other verbs work.")
    made = package.MCPServer("flagfinder", instructions=_INSTRUCTIONS, version=_core.VERSION)
    looks: tuple[Callable[..., object], ...] = (why, spin, core, stacks)
    acts: tuple[Callable[..., object], ...] = (guard, poke) if allow_poke else ()
    for tool in looks:
        made.tool(annotations=types.ToolAnnotations(readOnlyHint=True))(tool)
    for tool in acts:
        made.tool(annotations=types.ToolAnnotations(readOnlyHint=False, destructiveHint=True))(tool)
    return made


async def why(pid: int | None = None, name: str | None = None, seconds: float = 30.0) -> Answer:
    """Who keeps a process from going on, and why, across processes: give pid or name."""
    return await _answer(seconds, "why", *_whom(pid, name), "--timeout", f"{seconds:g}")


async def stacks(pid: int | None = None, name: str | None = None, seconds: float = 30.0) -> Answer:
    """The same as `why`, with all open calls of all threads in `stacks`."""
    return await _answer(seconds, "why", "--stacks", *_whom(pid, name), "--timeout", f"{seconds:g}")


async def spin(pid: int, seconds: float = 30.0) -> Answer:
    """Which word or call each busy thread of a process polls, and what each other one waits for."""
    return await _answer(seconds, "spin", str(pid), "--timeout", f"{seconds:g}")


async def core(file: str, seconds: float = 30.0) -> Answer:
    """Why a process hung that left this core file, by its path."""
    return await _answer(seconds, "why", f"--core={file}", "--timeout", f"{seconds:g}")


async def guard(command: list[str], after: float = 60.0) -> Answer:
    """Runs a command; if it takes longer than ``after`` seconds, says why, and ends it."""
    return await _answer(None, "guard", f"--after={after:g}", "--", *command)


async def poke(pid: int, address: str, size: int, value: int, dry_run: bool = True) -> Answer:
    """Writes a value into a word of a process; by default into a copy of the thread only."""
    how = "--dry-run" if dry_run else "--yes"
    word = (f"--address={address}", f"--size={size}", f"--value={value}")
    return await _answer(None, "poke", str(pid), *word, how)


def _whom(pid: int | None, name: str | None) -> list[str]:
    if (pid is None) == (name is None):
        raise ValueError("give either pid or name")
    return [str(pid)] if name is None else [f"--name={name}"]


async def _answer(seconds: float | None, verb: str, *words: str) -> Answer:
    """What the verb prints with --json, a failure's object too. ``seconds``: its own limit."""
    own = words.index("--") if "--" in words else len(words)
    process = await asyncio.create_subprocess_exec(
        *python("-m", "flagfinder", verb, *words[:own], "--json", *words[own:]),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        limit = None if seconds is None else seconds + _REMAINS
        told, _ = await asyncio.wait_for(process.communicate(), limit)
    finally:
        if process.returncode is None:  # the agent asks no more, or the verb does not end
            process.terminate()
            await process.wait()
    answer: Answer = json.loads(told)
    return answer
