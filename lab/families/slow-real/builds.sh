# SPDX-License-Identifier: MIT
# Nothing is unusual: one short program after the other.
echo ready >> "$LAB_TRUTH"
for i in $(seq 30); do
    seq 1 30000 | gzip > "$LAB_RUN/out"
done
