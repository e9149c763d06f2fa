# SPDX-License-Identifier: MIT
import os
import sqlite3
import sys

from lab_truth import ready, role

batch = int(sys.argv[1])
connection = sqlite3.connect(os.environ["LAB_RUN"] + "/rows.db", isolation_level=None)
connection.execute("create table rows (number int, name text)")
role("waiter")
ready()
number = 0
while True:
    connection.execute("begin")
    for _ in range(batch):
        connection.execute("insert into rows values (?, ?)", (number, f"row {number}"))
        number += 1
    connection.execute("commit")
    if number > 2_000_000:
        connection.execute("delete from rows")
        number = 0
