# SPDX-License-Identifier: MIT
"""Orders and an audit log go over two connections of one program. ``shop.py SOCKETS bad``: the
audit thread updates the row that the order's open transaction has, and the order waits for it.
"""

import os
import sys
import threading
import time

import psycopg2


def connect():
    return psycopg2.connect(
        host="127.0.0.1", port=os.environ["PGPORT"], user="postgres", dbname="postgres"
    )


def audit(number):
    connection = connect()
    with connection, connection.cursor() as cursor:
        cursor.execute("update orders set seen = seen + 1 where number = %s", (number,))
    connection.close()


def order(number, is_bad):
    connection = connect()
    cursor = connection.cursor()
    cursor.execute("update orders set state = 'paid' where number = %s", (number,))
    if not is_bad:
        connection.commit()
    auditor = threading.Thread(target=audit, args=(number,), name="audit")
    auditor.start()
    auditor.join()
    connection.commit()


def main():
    connection = connect()
    with connection, connection.cursor() as cursor:
        cursor.execute("create table orders as select 1 as number, 'new' as state, 0 as seen")
    timer = threading.Timer(1.5, say)
    timer.start()
    order(1, sys.argv[1:] == ["bad"])
    print("done", flush=True)
    time.sleep(100000)


def say():
    with open(os.environ["LAB_TRUTH"], "a") as file:
        file.write(f"role waiter {os.getpid()}\nready\n")


main()
