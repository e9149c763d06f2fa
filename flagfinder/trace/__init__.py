# SPDX-License-Identifier: MIT
"""In: a trace file, mapped and read by the engine. Out: a ``Trace`` of processes, threads, blocks,
values and syscalls. ``export.py`` writes it in other tools' formats and imports Tenet's.
"""
