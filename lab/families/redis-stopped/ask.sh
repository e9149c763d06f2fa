# SPDX-License-Identifier: MIT
redis-server --port 0 --unixsocket "$LAB_RUN/redis" --save '' --dir "$LAB_RUN" \
    --set-proc-title no > "$LAB_RUN/log" &
server=$!
until redis-cli -s "$LAB_RUN/redis" set name value > "$LAB_RUN/answer" 2>&1; do
    sleep 0.05
done
kill -STOP $server
redis-cli -s "$LAB_RUN/redis" get name &
client=$!
sleep 0.3
{
    echo "role server $server"
    echo "role waiter $client"
    echo ready
} >> "$LAB_TRUTH"
wait $client
