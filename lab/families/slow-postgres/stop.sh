# SPDX-License-Identifier: MIT
kill -INT "$(head -n 1 "$LAB_RUN/pg/data/postmaster.pid")"
