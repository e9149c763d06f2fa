# SPDX-License-Identifier: MIT
(
    flock 9
    exec sleep 100000
) 9> "$LAB_RUN/lock" &
echo "role holder $!" >> "$LAB_TRUTH"
sleep 0.2
arrived=0
trap 'arrived=1' USR1
flock "$LAB_RUN/lock" kill -USR1 $$ &
echo "role waiter $$" >> "$LAB_TRUTH"
echo ready >> "$LAB_TRUTH"
while [ "$arrived" = 0 ]; do
    sleep 0.05
done
