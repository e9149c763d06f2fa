# SPDX-License-Identifier: MIT
"""A shop that answers one request after the other; its stock is guarded by a file's lock."""

import fcntl
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

FOLDER = Path(sys.argv[1])


def stock():
    with (FOLDER / "stock").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        return b"3 left"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = stock() if self.path == "/stock" else b"fine"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Handler)
(FOLDER / "port").write_text(str(server.server_port))
server.serve_forever()
