# SPDX-License-Identifier: MIT
# The entry point of a container: it brings the database up to date, then starts the service.
# `entry.sh held`: another process of the container has the lock of the migration, and reads a FIFO.
dir=$2
notes() {
    grep -v '^#' | sort > "$dir/notes"
}
migrate() {
    flock "$dir/migration" -c 'echo version 12' | notes
}
mkfifo "$dir/orders"
if [ "$1" = held ]; then
    flock "$dir/migration" -c "read order < $dir/orders" &
    sleep 0.5
fi
migrate
sleep 100000
echo ended
