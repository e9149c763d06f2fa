# SPDX-License-Identifier: MIT
"""In: a trace of a good run and one of the run that spins.
Out: a ``Divergence``: where the second leaves, for good, what the first does.
"""
