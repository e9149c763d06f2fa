# SPDX-License-Identifier: MIT
import socket
import sys
import threading
import time

from lab_truth import ready, role


class Service:
    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.started = threading.Event()
        self.ready = False

    def serve(self) -> None:
        role("setter")
        self.listener.accept()
        self.started.set()
        self.ready = True


service = Service()
threading.Thread(target=service.serve, daemon=True).start()
time.sleep(0.2)
role("waiter")
ready()
if len(sys.argv) == 1:
    while not service.started.is_set():
        time.sleep(0.001)
else:
    while not service.ready:
        time.sleep(0.001)
