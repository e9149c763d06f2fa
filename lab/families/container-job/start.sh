# SPDX-License-Identifier: MIT
src=$1
shift
mkfifo "$LAB_RUN/origin"
unshare --pid --fork --mount-proc dash "$src/entry.sh" "$LAB_RUN" "$@" &
container=$!
sleep 2
first=$(pgrep -P $container)
echo "role waiter $first $first" >> "$LAB_TRUTH"
echo ready >> "$LAB_TRUTH"
wait $container
