# SPDX-License-Identifier: MIT
until grep -q up state 2>/dev/null; do
  sleep 1
done
