# SPDX-License-Identifier: MIT
echo ready >> "$LAB_TRUTH"
number=2
while :; do
    prime=1
    for ((divisor = 2; divisor * divisor <= number; divisor++)); do
        if ((number % divisor == 0)); then
            prime=0
            break
        fi
    done
    ((count += prime))
    ((number++))
done
