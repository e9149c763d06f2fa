# A thread asks a dictionary again and again; the one that fills it reads a silent input; another computes.
import sys, threading, time
from lab_truth import role, ready
results = {"first": 1}
def fetch():
    if sys.stdin.read(1):
        results["second"] = 2
def works():
    n = 0
    while True:
        n = (n * 7 + 1) % 1000003
threading.Thread(target=fetch, daemon=True).start()
threading.Thread(target=works, daemon=True).start()
role("waiter"); ready()
while "second" not in results:
    time.sleep(0)
