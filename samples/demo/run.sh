#!/bin/sh
# SPDX-License-Identifier: MIT
# make demo: an OpenMP program hangs in Debian's stripped libgomp; flagfinder names what it waits
# for.
#   run.sh DIR    DIR gets the program and the traces
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cd "$1"
show() { printf '\n$ %s\n' "$*"; "$@"; }

# Where there is no compiler (make test-wheel), the program lies there already.
! command -v cc >/dev/null || cc -O2 -fopenmp "$here/histogram.c" -o histogram
seq 1 20000 >one.txt
seq 5 20000 >two.txt
rm -f silent.fifo
mkfifo silent.fifo
sleep 600 >silent.fifo &   # keeps the FIFO's writing end open, as a stuck producer does
producer=$!
: <silent.fifo
hung=
giver=
trap 'kill $producer $hung $giver 2>/dev/null || :; rm -f silent.fifo' EXIT INT TERM

export OMP_WAIT_POLICY=active
printf '\nThe good run, then one in which the second file never says anything.\n'
show flagfinder record -o normal.trace -- ./histogram one.txt two.txt
show flagfinder record -o spin.trace --stop-when-spinning 2 -- ./histogram one.txt silent.fifo
show flagfinder diff normal.trace spin.trace

printf '\nNow it hangs untraced, and there is no good run: the live process itself is asked.\n'
./histogram one.txt silent.fifo &
hung=$!
sleep 1
show flagfinder spin "$hung"

printf '\nWho owes the write, and why has it not come?\n'
show flagfinder why "$hung"
flagfinder spin -q --json "$hung" >live.json

printf '\nWho writes that word? The producer is about to give up, so the second file ends.\n'
# It gives up as soon as the watch stands, however long that takes here.
: >watch.txt
(until grep -q '^watching' watch.txt; do sleep 0.2; done; sleep 1; kill "$producer") &
giver=$!
{ show flagfinder watch "$hung" --flag live.json#1 --until write --duration 60 ||
    printf '(watching needs root, or CAP_BPF and CAP_PERFMON; the rest of the demo did not)\n'
} 2>&1 | tee watch.txt
kill "$giver" "$producer" 2>/dev/null || :
wait "$hung"
hung=
