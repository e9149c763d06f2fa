# SPDX-License-Identifier: MIT
import hashlib
import os

digest = b""
while True:
    for _ in range(50):
        digest = hashlib.sha256(digest).digest()
    os.times()
    os.path.exists("/tmp/stop-early")
