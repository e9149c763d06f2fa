# SPDX-License-Identifier: MIT
"""In: a running process, nothing recorded. Out: ``spin``: the loop and the word of each thread that
waits; ``poke``: what happened after the value that ends the loop was written.
"""
