#!/bin/bash
# SPDX-License-Identifier: MIT
. "$(dirname "$0")/../../include/postgres.sh"
psql -qc 'create table account as select 1 as id, 0 as value'
(echo 'begin; update account set value = 1;'; exec sleep 100000) | psql -q & holder=$!
sleep 2
psql -qc 'update account set value = 2' & waits=$!
sleep 2
printf 'role waiter %d %d\nrole holder %d\nrole postgres %d\nready\n' \
    $waits $waits $holder $postgres >> $LAB_TRUTH
wait $waits
