# SPDX-License-Identifier: MIT
import os, socket, subprocess, sys, time

server = subprocess.Popen([sys.executable, os.path.join(os.path.dirname(__file__), "server.py")])
print(server.pid, flush=True)
time.sleep(0.5)
c = socket.create_connection(("127.0.0.1", 8932))
for i in range(15):
    c.sendall(b"fast")
    c.recv(16)
    time.sleep(0.01)
c.sendall(b"slow")
c.recv(16)
for i in range(3):
    c.sendall(b"fast")
    c.recv(16)
    time.sleep(0.01)
server.kill()
