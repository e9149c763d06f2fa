#!/bin/bash
# SPDX-License-Identifier: MIT
sleep 100000 & sleeper=$!
echo $sleeper > $LAB_RUN/pid
pidwait -F $LAB_RUN/pid & waits=$!
sleep 1
printf 'role waiter %d %d\nrole sleeper %d\nready\n' $waits $waits $sleeper >> $LAB_TRUTH
wait $waits
