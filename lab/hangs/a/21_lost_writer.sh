#!/bin/bash
# a helper that a stage leaves in the background keeps the pipe's write end: the reader gets no end of file
produce() { for i in 1 2 3; do echo "$i"; sleep 0.05; done; sleep 4321 & }
total=$(produce | while read -r line; do echo "got $line"; done | sort | tail -n 1)
echo "$total"
