#!/bin/bash
# SPDX-License-Identifier: MIT
. "$(dirname "$0")/../../include/postgres.sh"
"$2" "$(dirname "$0")/shop.py" "$1" & shop=$!
wait $shop
