#!/bin/bash
# SPDX-License-Identifier: MIT
# An X server that has no descriptors left, and clients that ask to connect.
display=$((100 + $$ % 10000))
(ulimit -n 40; exec Xvfb :$display -nolisten tcp -screen 0 100x100x8 > /dev/null 2>&1) & server=$!
sleep 3
python3 - $display <<'PY' &
import socket, sys, time
held = []
for _ in range(80):
    client = socket.socket(socket.AF_UNIX)
    try:
        client.connect(f'/tmp/.X11-unix/X{sys.argv[1]}')
    except OSError as error:
        print(error)
        break
    client.sendall(b'l\0\x0b\0\0\0\0\0\0\0\0\0')
    held.append(client)
    time.sleep(0.01)
time.sleep(100000)
PY
sleep 3
echo "pid $server spinning_tid $server"
wait $server
