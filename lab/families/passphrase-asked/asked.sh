# SPDX-License-Identifier: MIT
asker=$(pgrep -P "$LAB_PID" -x ssh-keygen) || exit 1
grep -q '^0 ' "/proc/$asker/syscall" || exit 1
{
    echo "role waiter $LAB_PID"
    echo "role asker $asker"
    echo ready
} >> "$LAB_TRUTH"
