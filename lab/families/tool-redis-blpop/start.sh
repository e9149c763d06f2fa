#!/bin/bash
# SPDX-License-Identifier: MIT
redis-server --port 0 --unixsocket $LAB_RUN/s --save '' --dir $LAB_RUN > $LAB_RUN/log & server=$!
until redis-cli -s $LAB_RUN/s ping > $LAB_RUN/ping 2>&1; do sleep 0.2; done
redis-cli -s $LAB_RUN/s blpop list 0 & waits=$!
sleep 1
printf 'role waiter %d %d\nrole server %d\nready\n' $waits $waits $server >> $LAB_TRUTH
wait $waits
