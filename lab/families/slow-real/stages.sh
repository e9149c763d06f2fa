# SPDX-License-Identifier: MIT
# The reader of a row of programs waits for the one in the middle that sorts.
mkfifo "$LAB_RUN/a" "$LAB_RUN/b"
seq 1 1500000 > "$LAB_RUN/a" &
sort -r "$LAB_RUN/a" > "$LAB_RUN/b" &
echo "role sort $! $!" >> "$LAB_TRUTH"
echo ready >> "$LAB_TRUTH"
exec gawk 'END { print NR }' "$LAB_RUN/b"
