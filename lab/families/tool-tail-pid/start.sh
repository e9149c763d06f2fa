#!/bin/bash
# SPDX-License-Identifier: MIT
sleep 100000 & sleeper=$!
: > $LAB_RUN/file
tail --pid=$sleeper -s 0.1 -f $LAB_RUN/file & waits=$!
sleep 1
printf 'role waiter %d %d\nrole sleeper %d\nready\n' $waits $waits $sleeper >> $LAB_TRUTH
wait $waits
