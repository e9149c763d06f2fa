# SPDX-License-Identifier: MIT
bin=$(ls -d /usr/lib/postgresql/*/bin 2> /dev/null | tail -1)
[ -x "$bin/initdb" ] || bin=$(pg_config --bindir)
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
{
    echo 'create temp table sums (n bigint);'
    for ((round = 0; round < 3000; round++)); do
        echo 'insert into sums select sum(a) from generate_series(1, 200000) a;'
    done
} | psql -q > "$LAB_RUN/answers" &
asks() { psql -Atc "select pid from pg_stat_activity where $1" | head -1; }
if [ "$1" = checkpointer ]; then
    target=$(asks "backend_type = 'checkpointer'")
else
    until target=$(asks "query like 'insert into sums%'") && [ -n "$target" ]; do
        sleep 0.05
    done
fi
echo "target $target" >> "$LAB_TRUTH"
echo ready >> "$LAB_TRUTH"
wait
