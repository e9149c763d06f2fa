# SPDX-License-Identifier: MIT
import socket
import sys

s = socket.socket(socket.AF_UNIX)
s.settimeout(float(sys.argv[3]) if len(sys.argv) > 3 else 5)
s.connect(sys.argv[1])
s.sendall((sys.argv[2] + "\n").encode())
n = 0
while True:
    d = s.recv(65536)
    if not d:
        break
    n += len(d)
print("cli answered", n, "bytes")
