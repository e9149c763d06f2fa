d=$(mktemp -d); mkfifo $d/f; (head -n 1 $d/f > /dev/null) & echo one > $d/f; wait; echo two > $d/f
