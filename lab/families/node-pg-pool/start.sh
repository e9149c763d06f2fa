#!/bin/bash
# SPDX-License-Identifier: MIT
# A node program whose pool has no client left, and its PostgreSQL.
. "$(dirname "$0")/../../include/postgres.sh"
NODE_PATH=$LAB_WORK/node_modules node "$(dirname "$0")/app.js" 127.0.0.1 $PGPORT & app=$!
sleep 4
{
    echo "role waiter $app $app"
    echo "role postgres $postgres"
    psql -Atc "select 'role backend' || row_number() over () || ' ' || pid from pg_stat_activity
        where state = 'idle' and pid <> pg_backend_pid()"
    echo ready
} >> $LAB_TRUTH
wait $app
