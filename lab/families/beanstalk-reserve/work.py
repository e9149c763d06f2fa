# SPDX-License-Identifier: MIT
import os
import socket
import subprocess
import time

from lab_truth import ready, role, truth

PATH = os.environ["LAB_RUN"] + "/queue"


def connect() -> socket.socket:
    end = socket.socket(socket.AF_UNIX)
    while end.connect_ex(PATH):
        time.sleep(0.05)
    return end


server = subprocess.Popen(["beanstalkd", "-l", "unix:" + PATH])
truth(f"role server {server.pid}")
producer = os.fork()
if producer == 0:
    role("producer")
    end = connect()
    time.sleep(100_000)
    end.send(b"put 0 0 60 3\r\njob\r\n")
    os._exit(0)
worker = connect()
worker.send(b"reserve\r\n")
time.sleep(0.4)
role("waiter")
ready()
print(worker.recv(100))
