# SPDX-License-Identifier: MIT
"""What the interpreter in a live process is executing, in the terms of the program that it runs."""
