# SPDX-License-Identifier: MIT
"""Whether /proc shows the processes of this pid namespace."""

from __future__ import annotations

from flagfinder.shared.errors import UnavailableError
from flagfinder.shared.proc_lines import proc_lines


def require_own_proc() -> None:
    """Raises UnavailableError where /proc shows other ids of processes than calls take.

    That is so in a pid namespace that was made without a /proc of its own: PID would name a
    stranger.
    """
    try:
        lines = proc_lines("/proc/self/status")
    except OSError as error:
        found = f"/proc/self/status: {error.strerror}"
    else:
        ids = next((line.split()[1:] for line in lines if line.startswith("NSpid:")), ["?"])
        if len(ids) == 1:
            return
        found = (
            "/proc is that of an outer pid namespace: there this command is process "
            f"{ids[0]}, here {ids[-1]}"
        )
    raise UnavailableError(
        "Processes can't be told by their ids",
        found,
        "Mount the /proc of this pid namespace (mount -t proc proc /proc, or `unshare "
        "--mount-proc`), or run outside.",
        "Files can be read: `flagfinder diff`, `flagfinder diagnose`.",
    )
