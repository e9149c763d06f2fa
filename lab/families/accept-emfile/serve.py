# SPDX-License-Identifier: MIT
import resource
import selectors
import socket

from lab_truth import ready, role, truth

resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
listener = socket.create_server(("127.0.0.1", 0))
listener.setblocking(False)
selector = selectors.PollSelector()
selector.register(listener, selectors.EVENT_READ)
files = []
client = socket.create_connection(listener.getsockname())
truth(f"fd listener {listener.fileno()}")
role("waiter")
ready()
try:
    while True:
        files.append(open("/dev/null"))
except OSError:
    pass
while True:
    for _, _ in selector.select():
        try:
            files.append(listener.accept()[0])
        except OSError as error:
            last = error
