# SPDX-License-Identifier: MIT
"""In: both traces and where they part. Out: a ``Report``: the loop that spins, the words it waits
for in order of confidence, the values that end it and who should have written them.
"""
