# SPDX-License-Identifier: MIT
"""Starts the server and, once it listens, the client."""

import subprocess
import sys
import time

from lab_truth import ready, truth

server = subprocess.Popen([sys.executable, "server.py"], stdout=subprocess.PIPE)
port = server.stdout.readline().decode().strip()
client = subprocess.Popen([sys.executable, "client.py", port], stdout=subprocess.PIPE)
client.stdout.readline()
time.sleep(0.5)
truth(f"role waiter {client.pid} {client.pid}")
truth(f"role server {server.pid}")
ready()
client.wait()
