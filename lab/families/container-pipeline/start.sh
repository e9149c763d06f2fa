# SPDX-License-Identifier: MIT
unshare --pid --fork --mount-proc dash "$1/entry.sh" "$2" "$LAB_RUN" &
container=$!
sleep 2
first=$(pgrep -P $container)
echo "role waiter $first $first" >> "$LAB_TRUTH"
for pid in $(pgrep -P "$first"); do
    if [ "$2" = held ] && grep -q 'read order' "/proc/$pid/cmdline"; then
        echo "role holder $(pgrep -P "$pid")" >> "$LAB_TRUTH"
    fi
done
echo ready >> "$LAB_TRUTH"
wait $container
