# SPDX-License-Identifier: MIT
data=$(cat "$LAB_RUN/data") && bin=$(cat "$LAB_RUN/bin") || exit 1
setpriv --reuid nobody --regid nogroup --clear-groups \
    "$bin/pg_ctl" -D "$data/db" -m immediate stop
rm -rf "$data"
