# SPDX-License-Identifier: MIT
# A worker dies while the pool still feeds large arguments into the call queue.
import concurrent.futures, os, signal, time


def work(i, blob):
    if i == 0:
        time.sleep(1.5)
        os.kill(os.getpid(), signal.SIGKILL)
    return len(blob)


if __name__ == "__main__":
    blob = b"x" * 4_000_000
    with concurrent.futures.ProcessPoolExecutor(1) as ex:
        fs = [ex.submit(work, i, blob) for i in range(6)]
        for f in fs:
            try:
                print(f.result())
            except Exception as e:
                print(type(e).__name__, flush=True)
    print("done")
