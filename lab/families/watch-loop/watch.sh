# SPDX-License-Identifier: MIT
mkdir -p "$LAB_RUN/in" "$LAB_RUN/out"
echo ready >> "$LAB_TRUTH"
number=0
while :; do
    number=$((number + 1))
    echo "job $number" > "$LAB_RUN/in/$((number % 7))"
    for file in "$LAB_RUN"/in/*; do
        [ -e "$file" ] || continue
        mv "$file" "$LAB_RUN/out/"
    done
    sleep 0.02
done
