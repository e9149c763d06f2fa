# SPDX-License-Identifier: MIT
. "$PYTHONPATH/postgres.sh"
psql -qc 'create table stock (id int primary key, left_over int)' \
    -c 'insert into stock select i, 100 from generate_series(1, 10) i'
echo "$PGPORT" > "$LAB_RUN/port.new"
mv "$LAB_RUN/port.new" "$LAB_RUN/port"
wait $postgres
