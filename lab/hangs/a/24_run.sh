d=$(mktemp -d); mkfifo $d/fifo; perl 24_holder.pl $d/lock $d/fifo & sleep 0.2; ./24_server $d/lock $d/port & sleep 0.3; python3 24_client.py $d/port & echo "client $!" > target; wait
