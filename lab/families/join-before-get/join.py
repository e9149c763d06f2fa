# SPDX-License-Identifier: MIT
import multiprocessing as mp


def work(q):
    for i in range(50):
        q.put("x" * 10000)


def main():
    q = mp.Queue()
    p = mp.Process(target=work, args=(q,), name="worker")
    p.start()
    p.join()
    print(sum(len(q.get()) for _ in range(50)))


if __name__ == "__main__":
    main()
