# SPDX-License-Identifier: MIT
"""Where a program's memory has a pattern: `find_word.py PID HEX NAME OFFSET SIZE` writes the word
that lies OFFSET bytes behind it to the truth. For programs that can't tell an address. The pattern
must be there once; it is searched in private and shared writable memory.
"""

import os
import re
import sys
from pathlib import Path


def places(pid: int, pattern: bytes) -> list[int]:
    """Addresses at which the pattern begins."""
    found = []
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            match = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
            if not match or "[v" in line:
                continue
            start, end = int(match[1], 16), int(match[2], 16)
            if end - start > 1 << 28:
                continue
            try:
                memory.seek(start)
                data = memory.read(end - start)
            except OSError:
                continue
            at = data.find(pattern)
            while at >= 0:
                found.append(start + at)
                at = data.find(pattern, at + 1)
    return found


def main() -> int:
    """Looks once."""
    pid, pattern, name, offset, size = sys.argv[1:]
    found = places(int(pid), bytes.fromhex(pattern))
    if len(found) != 1:
        print(f"the pattern is there {len(found)} times", file=sys.stderr)
        return 1
    with Path(os.environ["LAB_TRUTH"]).open("a", encoding="utf-8") as file:
        file.write(f"word {name} {found[0] + int(offset):#x} {size} {pid}\nready\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
