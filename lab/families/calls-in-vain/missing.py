# SPDX-License-Identifier: MIT
tries = 0
while True:
    try:
        open("/tmp/never-there")
        break
    except OSError:
        tries += 1
