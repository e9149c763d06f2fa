# SPDX-License-Identifier: MIT
import concurrent.futures as cf, threading, time

started = threading.Event()


def first(n):
    started.wait()
    return n


def second():
    started.set()


def main():
    with cf.ThreadPoolExecutor(2, thread_name_prefix="pool") as pool:
        a = [pool.submit(first, n) for n in range(2)]
        time.sleep(0.1)
        pool.submit(second)
        print([f.result() for f in a])


main()
