# SPDX-License-Identifier: MIT
"""In: the commands of a good run and of one that spins; or nothing but this machine.
Out: ``find``: the flag, by every stage in turn; ``doctor``: what each stage lacks here.
"""
