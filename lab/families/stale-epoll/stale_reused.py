# SPDX-License-Identifier: MIT
# an event loop with a pair of sockets to wake itself; epoll tells for ever of a pipe that was
# closed here before it was taken out, while a child still has it
import os, select, socket, subprocess

epoll = select.epoll()
r, w = os.pipe()
os.set_inheritable(w, True)
child = subprocess.Popen(["sleep", "1000"], close_fds=False)


class Loop:
    def __init__(self):
        self.handlers = {}
        self.ready = []

    def add(self, fd, events, handler):
        epoll.register(fd, events)
        self.handlers[fd] = handler

    def remove(self, fd):
        try:
            epoll.unregister(fd)
        except OSError:
            pass
        self.handlers.pop(fd, None)

    def once(self):
        while self.ready:
            self.ready.pop()()
        for fd, events in epoll.poll(2):
            handler = self.handlers.get(fd)
            if handler is not None:
                self.ready.append(handler)

    def run(self):
        while True:
            self.once()


loop = Loop()
loop.add(w, select.EPOLLOUT, lambda: None)

os.close(w)
loop.remove(w)
wake, waker = socket.socketpair()
wake.setblocking(False)  # gets the number of the pipe
loop.add(wake.fileno(), select.EPOLLIN, lambda: None)
print("pid", os.getpid(), flush=True)
loop.run()
