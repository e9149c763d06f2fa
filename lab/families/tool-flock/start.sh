#!/bin/bash
# SPDX-License-Identifier: MIT
flock $LAB_RUN/lock sleep 100000 & holder=$!
sleep 1
flock $* $LAB_RUN/lock true & waits=$!
sleep 0.5
cat >> $LAB_TRUTH <<X
role waiter $waits $waits
role sleeper $(cat /proc/$holder/task/$holder/children)
ready
X
wait $waits
