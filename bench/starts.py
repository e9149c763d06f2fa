# SPDX-License-Identifier: MIT
"""How often does a program that generates code die when it is recorded, and what does the slower
setting for such programs cost?

Each program is recorded so many times, at level values. A start that does not print its result and
end with 0 is a death. The price of `-no_bb_ibl_targets` is the recorded program's time with
`--generated-code yes` over that with `no`, at level flow, in turns; a run that dies has no time.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

JAVA = """
public class Start {
    public static void main(String[] arguments) {
        long sum = 0;
        java.util.HashMap<Integer, Integer> map = new java.util.HashMap<>();
        for (int i = 0; i < 2000000; i++) { sum += i % 7; if (i % 16 == 0) map.put(i % 999, i); }
        System.out.println(sum + map.size() > 0 ? "done" : "not");
    }
}
"""
CSHARP = """
using System.Collections.Generic;
public class Start {
    public static void Main() {
        long sum = 0;
        var map = new Dictionary<int, int>();
        for (int i = 0; i < 2000000; i++) { sum += i % 7; if (i % 16 == 0) map[i % 999] = i; }
        System.Console.WriteLine(sum + map.Count > 0 ? "done" : "not");
    }
}
"""
DOTNET_SETTINGS = {
    "runtimeOptions": {
        "framework": {"name": "Microsoft.NETCore.App", "version": "3.1.0"},
        "rollForward": "major",
        "configProperties": {"System.Globalization.Invariant": True},
    }
}
JS = (
    "let s=0,m={};for(let i=0;i<2e6;i++){s+=i%7;if(i%16==0)m[i%999]=i}console.log(s>0?'done':'not')"
)
LUA = (
    "local s,m=0,{} for i=1,5e6 do s=s+i%7 if i%16==0 then m[i%999]=i end end print(s>0 and "
    "'done' or 'not')"
)
PYTHON = """
def main():
    s, m = 0, {}
    for i in range(2000000):
        s += i % 7
        if i % 16 == 0: m[i % 999] = i
    print('done' if s > 0 else 'not')
main()
"""


def programs(folder: Path) -> dict[str, list[str]]:
    """Command lines of those that are installed."""
    found = {}
    if shutil.which("javac"):
        (folder / "Start.java").write_text(JAVA)
        subprocess.run(["javac", "-d", folder, folder / "Start.java"], check=True)
        found["java"] = ["java", "-cp", str(folder), "Start"]
    if shutil.which("dotnet") and shutil.which("mcs"):
        (folder / "Start.cs").write_text(CSHARP)
        subprocess.run(["mcs", f"-out:{folder}/Start.dll", folder / "Start.cs"], check=True)
        (folder / "Start.runtimeconfig.json").write_text(json.dumps(DOTNET_SETTINGS))
        found["dotnet"] = ["dotnet", "exec", str(folder / "Start.dll")]
    for name, command in (
        ("node", ["node", "-e", JS]),
        ("luajit", ["luajit", "-e", LUA]),
        ("pypy3", ["pypy3", "-c", PYTHON]),
    ):
        if shutil.which(command[0]):
            found[name] = command
    return found


def start(command: list[str], trace: Path, *options: str) -> tuple[float, str | None]:
    """Seconds, and why it counts as a death (None: it does not)."""
    words = [
        "flagfinder",
        "record",
        "-o",
        str(trace),
        "--stop-after",
        "180",
        *options,
        "--",
        *command,
    ]
    began = time.monotonic()
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=400)
    seconds = time.monotonic() - began
    if done.returncode == 0 and "done" in done.stdout:
        return seconds, None
    return seconds, f"{done.returncode}: {done.stderr.strip()[-300:]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--price-runs", type=int, default=3)
    parser.add_argument("--programs", default="java,dotnet,node,luajit,pypy3")
    parser.add_argument("--json", type=Path, help="where to write the rows")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="flagfinder-starts-") as name:
        folder = Path(name)
        for program, command in programs(folder).items():
            if program not in options.programs.split(","):
                continue
            deaths = []
            for _ in range(options.starts):
                _, death = start(command, folder / "trace")
                deaths += [death] if death else []
            times: dict[str, list[float]] = {"yes": [], "no": []}
            for _ in range(options.price_runs):
                for setting in times:
                    seconds, death = start(
                        command, folder / "trace", "--level", "flow", "--generated-code", setting
                    )
                    times[setting] += [] if death else [seconds]
            price = None
            if all(times.values()):
                price = round(statistics.median(times["yes"]) / statistics.median(times["no"]), 2)
            medians = {
                key: round(statistics.median(value), 2) if value else None
                for key, value in times.items()
            }
            row = {
                "program": program,
                "starts": options.starts,
                "deaths": len(deaths),
                "s, yes": medians["yes"],
                "s, no": medians["no"],
                "died with no": options.price_runs - len(times["no"]),
                "price x": price,
            }
            rows.append(row)
            print(row, *deaths[:2], flush=True)
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
