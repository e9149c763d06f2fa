#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The pool in numpy, which brings an OpenBLAS of its own: normal|spin ROUNDS FREEZE.SO."""

import ctypes
import sys
import time
from pathlib import Path

import numpy as np

SIDE = 300


def main() -> None:
    """Rounds of work; then one worker is frozen, and there is a last round."""
    hangs, rounds = sys.argv[1] == "spin", int(sys.argv[2]) // 5
    freezer = ctypes.CDLL(sys.argv[3])
    libraries = Path(np.__file__).parent.with_name("numpy.libs")
    openblas = ctypes.CDLL(str(next(libraries.glob("libscipy_openblas64_*"))))
    openblas.scipy_openblas_set_num_threads64_(4)  # more than there are processors, too
    matrix = product = np.ones((SIDE, SIDE))
    for number in range(rounds + 1):
        time.sleep(0.01)
        if hangs and number == rounds:
            freezer.freeze_worker(1)
        product = (matrix @ product) / SIDE
    print(product[0, 0])


main()
