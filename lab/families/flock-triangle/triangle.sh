# SPDX-License-Identifier: MIT
cd "$LAB_RUN" || exit 3
touch a b c
step() { flock "$1" sh -c "sleep 0.4; exec flock $2 true" & }
step a b
waiter=$!
step b c
step c a
sleep 1
until inner=$(pgrep -P $waiter -x flock); do
    waiter=$(pgrep -P $waiter) || exit 4
done
echo "role waiter $inner" >> "$LAB_TRUTH"
echo ready >> "$LAB_TRUTH"
wait
