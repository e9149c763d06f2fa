# SPDX-License-Identifier: MIT
data=$LAB_RUN/db bin=$(cat "$LAB_RUN/bin") || exit 1
cd / || exit 1
setpriv --reuid nobody --regid nogroup --clear-groups \
    "$bin/pg_ctl" -D "$data/db" -m immediate stop
