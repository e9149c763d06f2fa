# SPDX-License-Identifier: MIT
"""What several stages need: errors, the machine, programs to start, files, text fit for a terminal.
In: nothing of any stage. Out: plain functions and types, and ``start.py``, which runs before all
else.
"""
