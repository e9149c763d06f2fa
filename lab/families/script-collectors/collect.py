# SPDX-License-Identifier: MIT
import gc

from lab_truth import ready, role

heap = [[number] for number in range(1_000_000)]
role("waiter")
ready()
while True:
    gc.collect()
    heap[len(heap) // 2] = [heap[0]]
