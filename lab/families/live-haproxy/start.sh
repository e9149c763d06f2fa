#!/bin/bash
# SPDX-License-Identifier: MIT
# start.sh CASES: thread 2 reads a FIFO in Lua; then `show fd` on thread 1 waits for all threads.
port=$(python3 -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
mkfifo $LAB_RUN/slow
export SLOW_FIFO=$LAB_RUN/slow
cat > $LAB_RUN/cfg <<C
global
  nbthread 2
  stats socket $LAB_RUN/cli.sock level admin thread 1
  lua-load-per-thread $1/block.lua
defaults
  mode http
  timeout client 300s
  timeout server 300s
  timeout connect 5s
frontend f
  bind 127.0.0.1:$port thread 2
  http-request lua.block
  http-request return status 200 content-type text/plain string "ok"
C
haproxy -db -f $LAB_RUN/cfg & server=$!
while [ ! -S $LAB_RUN/cli.sock ]; do sleep 0.2; done
sleep 1
curl -s -o $LAB_RUN/slowly http://127.0.0.1:$port/slow &
sleep 1
python3 $1/cli.py $LAB_RUN/cli.sock "show fd" 100000 > $LAB_RUN/cli &
sleep 1
echo "pid $server tid $server"
wait $server
