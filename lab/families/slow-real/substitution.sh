# SPDX-License-Identifier: MIT
# A shell reads what commands print, of which one computes for long.
for i in $(seq 60); do
    if [ "$i" = 40 ]; then
        found=$(sh -c "python3 $1/more.py counted | tail -n 1")
    else
        found=$(sh -c "echo $i | tail -n 1")
    fi
    total=$((total + found))
done
echo ready >> "$LAB_TRUTH"
