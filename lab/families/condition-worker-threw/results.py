# SPDX-License-Identifier: MIT
import threading

done = threading.Condition()
results = []


def work(which):
    if which == 2:
        raise ValueError("no such id")
    with done:
        results.append(which)
        done.notify()


def main():
    for which in range(4):
        threading.Thread(target=work, args=(which,)).start()
    print("started", flush=True)
    with done:
        while len(results) < 4:
            done.wait()


main()
