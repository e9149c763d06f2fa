# SPDX-License-Identifier: MIT
"""Starts the client that the words name, reads its request, and sleeps."""

import socket
import subprocess
import sys
import time

from lab_truth import ready, role, truth

listener = socket.create_server(("127.0.0.1", 0))
url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
client = subprocess.Popen([*sys.argv[1:], url])
connection, _ = listener.accept()
connection.recv(10000)
truth(f"role waiter {client.pid} {client.pid}")
role("server")
ready()
time.sleep(100000)
