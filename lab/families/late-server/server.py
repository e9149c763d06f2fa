# SPDX-License-Identifier: MIT
import socket, time, sys

s = socket.create_server(("127.0.0.1", 8932))
while True:
    c, _ = s.accept()
    while d := c.recv(16):
        n = 0.7 if d == b"slow" else 0.002
        e = time.process_time() + n
        while time.process_time() < e:
            pass
        c.sendall(b"ok")
