#!/bin/bash
# SPDX-License-Identifier: MIT
(echo 'create table t(a); begin exclusive;'; exec sleep 100000) | sqlite3 $LAB_RUN/db & holder=$!
sleep 1.5
sqlite3 -cmd '.timeout 100000000' $LAB_RUN/db 'insert into t values(1)' & waits=$!
sleep 1
printf 'role waiter %d %d\nrole holder %d\nready\n' $waits $waits $holder >> $LAB_TRUTH
wait $waits
