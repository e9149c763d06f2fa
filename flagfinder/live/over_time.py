# SPDX-License-Identifier: MIT
"""The story of a test that is over time, as text.

In: what ``why --children --json`` printed. Out: its root in one line, and all of it. Run as a
module it prints the story of a run of pytest that can't be told otherwise, and ends what the run
started.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from flagfinder.live.tree import NOT_OURS, LeftProcess, descended
from flagfinder.live.why_chain import WhyReport, why_texts
from flagfinder.shared.visible import visible


def story(found: bytes) -> tuple[str, str]:
    """The root in one line, and the whole story, or why there is none."""
    try:
        raw = json.loads(found)
        if raw["schema"] == "flagfinder.error/1":
            parts = (raw["error"][part] for part in ("what", "found", "fix"))
            text = "\n".join(visible(part) for part in parts if part)
            return text.partition("\n")[0], text
        # The test goes on, or is ended: no command is left to run.
        all_of = (raw, *raw.get("others", ()))
        reports = [WhyReport.from_raw(one).of_the_dead() for one in all_of]
    except (ValueError, KeyError, TypeError):
        return "why it hangs is not known", "`flagfinder why` of the run gave no answer"
    root = next((report for report in reports if report.found), reports[0]).story[0]
    return visible(root), "\n\n".join(why_texts(reports))


def _main() -> None:
    pid = int(sys.argv[1])
    test = visible(sys.argv[2])
    print(f"\nflagfinder: {test} is over time, and the run does not go on: it is ended")
    print(story(sys.stdin.buffer.read())[1], flush=True)
    for one in descended(pid):
        if one.pid not in (os.getpid(), os.getppid()):
            try:
                one.send(signal.SIGKILL)
            except ProcessLookupError:
                continue
            except PermissionError:
                print(visible(str(LeftProcess.of(one.pid, NOT_OURS))), flush=True)


if __name__ == "__main__":
    _main()
