# a consumer in BLPOP; the producer waits for a lock that a third process holds
d=$(mktemp -d); redis-server --port 0 --unixsocket $d/s --save '' --daemonize no > /dev/null & until [ -S $d/s ]; do sleep 0.05; done
flock $d/lock sleep 7777 & sleep 0.1; (flock $d/lock redis-cli -s $d/s LPUSH jobs 1) & redis-cli -s $d/s BLPOP jobs 0 & echo "consumer $!" > target; wait
