# SPDX-License-Identifier: MIT
"""In: a process, and words to watch: addresses, symbols or a flag that another stage named.
Out: each read and write of them, with its thread, code and value, as JSON lines in order of time.
"""
