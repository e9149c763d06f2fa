# SPDX-License-Identifier: MIT
"""In: what a stage found. Out: what people read: text on a terminal, a page of a hang, a debugger's
script. One module for each thing that is shown, and the terminal they share.
"""
