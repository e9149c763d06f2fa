# SPDX-License-Identifier: MIT
"""``flagfinder mcp``, asked by the client of the package."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

from harness import FLAGFINDER
from mcp import Client, StdioServerParameters
from schemas import validate

TOOLS = {"why", "spin", "core", "stacks"}


def asked(*calls: tuple[str, dict[str, Any]], options: tuple[str, ...] = ()) -> Any:
    """The names of all tools, with whether they only read, and the answers."""

    async def ask() -> Any:
        words = [*map(str, FLAGFINDER), "mcp", *options]
        server = StdioServerParameters(command=words[0], args=words[1:])
        async with Client(server) as client:
            tools = (await client.list_tools()).tools
            notes = {tool.name: tool.annotations for tool in tools}
            found = {name: note is not None and note.read_only_hint for name, note in notes.items()}
            answers = [await client.call_tool(name, given) for name, given in calls]
            return found, answers

    return asyncio.run(ask())


def test_an_agent_is_told_why_a_process_waits() -> None:
    script = "import time; print(flush=True); time.sleep(1000)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        given = {"pid": process.pid}
        tools, (why, stacks, wrong) = asked(
            ("why", given), ("stacks", given), ("why", {"pid": process.pid, "name": "both"})
        )
        process.kill()
    assert tools == dict.fromkeys(TOOLS, True)
    answer = why.structured_content
    validate(answer)
    assert answer["pid"] == process.pid
    assert (answer["root"]["kind"], answer["root"]["pid"]) == ("timer", process.pid), answer
    assert stacks.structured_content["stacks"]
    assert wrong.is_error


def test_what_changes_something_is_to_be_allowed() -> None:
    tools, (hung,) = asked(
        ("guard", {"command": ["sleep", "60"], "after": 0.5}), options=("--allow-poke",)
    )
    assert {name for name, reads in tools.items() if not reads} == {"guard", "poke"}
    validate(hung.structured_content)
    assert hung.structured_content["hung"]
