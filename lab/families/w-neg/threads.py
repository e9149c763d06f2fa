# Three threads add under one lock, for moments.
import threading
lock = threading.Lock()
total = [0]
class Account:
    closed = False
    def __init__(self): self.sum = 0
account = Account()
def work():
    while not account.closed:
        with lock:
            account.sum += 1
            total[0] = account.sum * 3 % 1000
for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
work()
