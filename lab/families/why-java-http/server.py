# SPDX-License-Identifier: MIT
"""Listens, starts the client with its port, and sleeps instead of answering."""

import os
import socket
import subprocess
import sys
import time

from lab_truth import ready, truth

server = socket.create_server(("127.0.0.1", 0))
port = server.getsockname()[1]
client = subprocess.Popen([*sys.argv[1:], str(port)])
time.sleep(6)
truth(f"role waiter {client.pid} {client.pid}")
truth(f"role server {os.getpid()}")
ready()
time.sleep(100000)
