# SPDX-License-Identifier: MIT
# Each round starts three commands and waits for all of them; one of them is slow.
for i in $(seq 40); do
    for part in 1 2 3; do
        if [ "$i$part" = 252 ]; then
            sh -c 'echo "role slow $$ $$" >> "$LAB_TRUTH"; exec sleep 1' &
        else
            sleep 0.01 &
        fi
    done
    wait
done
echo ready >> "$LAB_TRUTH"
