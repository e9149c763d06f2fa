# SPDX-License-Identifier: MIT
bin=$(pg_config --bindir 2> /dev/null)
[ -x "$bin/initdb" ] || bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
data=$LAB_RUN/db
mkdir "$data"
chmod 711 "$LAB_RUN"
echo "$bin" > "$LAB_RUN/bin"
chown nobody "$data"
as_nobody() { setpriv --reuid nobody --regid nogroup --clear-groups "$@"; }
cd "$data" || exit 3
as_nobody "$bin/initdb" -D "$data/db" -A trust -N > "$LAB_RUN/init" || exit 3
as_nobody "$bin/pg_ctl" -D "$data/db" -w -l "$data/log" \
    -o "-c listen_addresses= -c unix_socket_directories=$data -c fsync=off" start || exit 3
export PGHOST=$data PGDATABASE=postgres PGUSER=nobody
mkfifo "$data/typed"
psql -q < "$data/typed" > "$data/answers" &
(
    echo 'select pg_advisory_lock(39);'
    exec sleep 100000
) > "$data/typed" &
until psql -Atc 'select count(*) from pg_locks where locktype = $$advisory$$ and granted' |
    grep -q 1; do
    sleep 0.05
done
psql -qc 'select pg_advisory_lock(39)' &
waiter=$!
until psql -Atc 'select count(*) from pg_locks where not granted' | grep -q 1; do
    sleep 0.05
done
echo "role waiter $waiter" >> "$LAB_TRUTH"
echo ready >> "$LAB_TRUTH"
wait $waiter
