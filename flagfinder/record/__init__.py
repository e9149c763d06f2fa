# SPDX-License-Identifier: MIT
"""In: a command line or a process, and which tracer is to follow it: DynamoRIO, Frida or lldb.
Out: a trace file, and a ``Recording`` that says what was recorded and how it ended.
"""
