# SPDX-License-Identifier: MIT
import multiprocessing as mp, os, signal, time


def task(n):
    time.sleep(0.05)
    if n == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return n * n


def main():
    with mp.Pool(3) as pool:
        print(pool.map(task, range(8), chunksize=1))


if __name__ == "__main__":
    main()
