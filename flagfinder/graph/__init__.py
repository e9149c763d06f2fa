# SPDX-License-Identifier: MIT
"""In: what the kernel says of programs while they run: who runs, who wakes whom, what threads wait
for. Out: an event file; from it the graph of wakes and waits, critical paths, and the culprit of
a hang.
"""
