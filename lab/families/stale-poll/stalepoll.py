# SPDX-License-Identifier: MIT
# a daemon's loop: a descriptor that is closed stays in the set to poll, its number is now a log
# file's; what nobody knows is left alone
import os, select, sys

log = open(os.environ["LAB_RUN"] + "/log", "w")
r, w = os.pipe()
poller = select.poll()
handlers = {}


class Handler:
    def __init__(self, fd):
        self.fd = fd

    def readable(self):
        return True

    def handle(self):
        os.read(self.fd, 100)


class Daemon:
    def tick(self, now):
        self.now = now

    def reap(self):
        try:
            return os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None

    def run(self):
        print("pid", os.getpid(), flush=True)
        import time

        while True:
            every = {}
            every.update(handlers)
            for fd, handler in every.items():
                if handler.readable():
                    poller.register(fd, select.POLLIN)
            found = poller.poll(1000)
            for fd, events in found:
                if fd in every:
                    every[fd].handle()
            self.reap()
            self.tick(time.time())


handlers[r] = Handler(r)
poller.register(log.fileno(), select.POLLIN)
Daemon().run()
