# SPDX-License-Identifier: MIT
import socket

tries = 0
while True:
    with socket.socket() as s:
        try:
            s.connect(("127.0.0.1", 9))
            break
        except OSError:
            tries += 1
