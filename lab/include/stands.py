# SPDX-License-Identifier: MIT
"""Whether threads stand as a recipe says: `stands.py ROLE WHAT [ROLE WHAT ..]`, where WHAT is the
letter of a state (T: stopped) or the number of a system call. For a recipe's `check.script`.
"""

import os
import sys
from pathlib import Path


def main() -> int:
    """Asks /proc about each role."""
    roles = {}
    for line in Path(os.environ["LAB_TRUTH"]).read_text().splitlines():
        match line.split():
            case ["role", name, pid, *tid]:
                roles[name] = f"/proc/{pid}/task/{(tid or [pid])[0]}"
    words = sys.argv[1:]
    for role, what in zip(words[::2], words[1::2], strict=True):
        folder = Path(roles[role])
        if what[0].isdigit():
            found = (folder / "syscall").read_text().split()[0]
        else:
            found = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        if found not in what.split(","):
            print(f"{role} is in {found}, and not in {what}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
