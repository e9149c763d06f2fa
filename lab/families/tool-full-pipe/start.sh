#!/bin/bash
# SPDX-License-Identifier: MIT
mkfifo $LAB_RUN/pipe
sleep 100000 < $LAB_RUN/pipe & sleeper=$!
"$@" > $LAB_RUN/pipe 2> $LAB_RUN/errors & waits=$!
sleep 2
printf 'role waiter %d %d\nrole sleeper %d\nready\n' $waits $waits $sleeper >> $LAB_TRUTH
wait $waits
