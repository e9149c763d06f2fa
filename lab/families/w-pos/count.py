# The main thread polls a counter of an object; three of four workers have counted, one reads a silent input.
import sys, threading, time
from lab_truth import role, ready
class Pool:
    def __init__(self): self.finished = 0; self.lock = threading.Lock()
pool = Pool()
def work(n):
    if n == 3: sys.stdin.read(1)
    with pool.lock: pool.finished += 1
for n in range(4): threading.Thread(target=work, args=(n,), daemon=True).start()
role("waiter"); ready()
while pool.finished < 4:
    time.sleep(0.0005)
