#!/bin/bash
# SPDX-License-Identifier: MIT
# start.sh SUPERVISORD: a closed client socket's number is reused by a log file in the same round
cat > $LAB_RUN/c.conf <<C
[supervisord]
logfile=$LAB_RUN/s.log
pidfile=$LAB_RUN/s.pid
nodaemon=true
[unix_http_server]
file=$LAB_RUN/s.sock
[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
[program:a]
command=sleep 100000
stdout_logfile=$LAB_RUN/a.out
stderr_logfile=$LAB_RUN/a.err
C
$1 -c $LAB_RUN/c.conf > $LAB_RUN/out 2>&1 & daemon=$!
while [ ! -S $LAB_RUN/s.sock ]; do sleep 0.2; done
sleep 2
python3 "$(dirname "$0")/ask.py" $daemon $LAB_RUN/s.sock
wait $daemon
