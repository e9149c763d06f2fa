"""The consumer thread died by an exception; the producer blocks in put of a full queue."""
import queue, threading, time
jobs = queue.Queue(maxsize=5)
def consume():
    while True:
        job = jobs.get()
        time.sleep(0.01)
        if job["id"] == 6:
            raise KeyError("price")
def produce():
    for i in range(100):
        jobs.put({"id": i})
def beat():
    while True:
        time.sleep(0.3)
threading.Thread(target=beat, name="beat", daemon=True).start()
c = threading.Thread(target=consume, name="consumer", daemon=True); c.start()
p = threading.Thread(target=produce, name="producer"); p.start()
p.join()
