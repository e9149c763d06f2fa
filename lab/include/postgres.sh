# SPDX-License-Identifier: MIT
# Sourced by the starters of cases that need a PostgreSQL of their own: it lies in LAB_RUN and
# listens there and at 127.0.0.1:$PGPORT.
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
as() { setpriv --reuid postgres --regid postgres --clear-groups "$@"; }
free_port() {
    python3 -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])'
}
chmod 755 "$LAB_RUN"
mkdir "$LAB_RUN/pg"
chown postgres "$LAB_RUN/pg"
export PGPORT=$(free_port) PGHOST=127.0.0.1 PGUSER=postgres
as "$bin/initdb" -D "$LAB_RUN/pg/data" -A trust -U postgres > "$LAB_RUN/initdb" 2>&1
echo "listen_addresses='127.0.0.1'
port=$PGPORT
unix_socket_directories='$LAB_RUN/pg'
fsync=off" >> "$LAB_RUN/pg/data/postgresql.conf"
as "$bin/postgres" -D "$LAB_RUN/pg/data" > "$LAB_RUN/pg.log" 2>&1 &
postgres=$!
until psql -qc 'select 1' > "$LAB_RUN/first" 2>&1; do sleep 0.3; done
