# SPDX-License-Identifier: MIT
from lab_truth import ready, role

role("waiter")
ready()
found = []
number = 2
while True:
    if all(number % prime for prime in found[:200]):
        found.append(number)
        if len(found) > 100_000:
            found.clear()
    number += 1
