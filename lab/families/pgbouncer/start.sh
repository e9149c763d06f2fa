#!/bin/bash
# SPDX-License-Identifier: MIT
# pgbouncer with a pool of one; a client began a transaction and thinks of something else; another.
. "$(dirname "$0")/../../include/postgres.sh"
port=$(free_port)
cat > $LAB_RUN/pg/b.ini <<X
[databases]
postgres = host=127.0.0.1 port=$PGPORT dbname=postgres user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $port
auth_type = any
pool_mode = transaction
default_pool_size = 1
query_wait_timeout = 0
logfile = $LAB_RUN/pg/b.log
pidfile = $LAB_RUN/pg/b.pid
unix_socket_dir = $LAB_RUN/pg
X
as pgbouncer -q $LAB_RUN/pg/b.ini & bouncer=$!
sleep 2
mkfifo $LAB_RUN/typed
(echo "begin; select 1;"; exec sleep 100000) > $LAB_RUN/typed & types=$!
psql -q -h 127.0.0.1 -p $port postgres < $LAB_RUN/typed > $LAB_RUN/one & thinks=$!
sleep 2
psql -q -h 127.0.0.1 -p $port postgres -c 'select 2' > $LAB_RUN/two & waits=$!
sleep 2
cat >> $LAB_TRUTH <<X
role waiter $waits $waits
role bouncer $bouncer
role postgres $postgres
role thinks $thinks
role types $types
ready
X
wait $waits
