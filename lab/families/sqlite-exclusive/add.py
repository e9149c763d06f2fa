# SPDX-License-Identifier: MIT
import os
import sqlite3
import subprocess
import time

from lab_truth import ready, role, truth

PATH = os.environ["LAB_RUN"] + "/shop.db"
connection = sqlite3.connect(PATH, timeout=100_000, isolation_level=None)
connection.execute("create table orders (amount int)")
holder = subprocess.Popen(["sqlite3", PATH], stdin=subprocess.PIPE, text=True)
holder.stdin.write("begin exclusive; insert into orders values (1);\n.shell exec sleep 100000\n")
holder.stdin.flush()
while True:
    time.sleep(0.1)
    found = subprocess.run(
        ["pgrep", "-P", str(holder.pid), "-x", "sleep"], capture_output=True, text=True, check=False
    ).stdout
    if found:
        break
truth(f"role sqlite {holder.pid}")
truth(f"role holder {found.strip()}")
role("waiter")
ready()
connection.execute("insert into orders values (2)")
