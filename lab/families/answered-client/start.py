# SPDX-License-Identifier: MIT
# A server of one process per connection, and a client that has its answer and waits for something
# else. HALF: it has sent half a request, so that both wait for each other.
import asyncio, os, select, socket, socketserver, sys, time
from lab_truth import ready, role, truth


class H(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(b"answer\n")


server = socketserver.ForkingTCPServer(("127.0.0.1", 0), H)
port = server.server_address[1]
client = os.fork()
if client:
    truth(f"role server {os.getpid()}")
    server.serve_forever()
server.server_close()


def wait(s):
    role("waiter")
    ready()
    e = select.epoll()
    e.register(s, select.EPOLLIN)
    e.poll()


async def main():
    r, w = await asyncio.open_connection("127.0.0.1", port)
    w.write(b"q\n")
    await r.readline()
    role("waiter")
    ready()
    await asyncio.get_running_loop().create_future()  # never set


if sys.argv[1] == "asyncio":
    asyncio.run(main())
s = socket.create_connection(("127.0.0.1", port))
if sys.argv[1] == "epoll":
    s.sendall(b"q\n")
    s.recv(100)
else:
    s.sendall(b"q")
    time.sleep(0.3)
    s.sendall(b"q")
wait(s)
