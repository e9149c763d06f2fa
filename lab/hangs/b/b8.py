import os, signal, socket, threading, time
here, there = socket.socketpair()
pid = os.fork()
if pid == 0:
    here.close(); there.recv(10); time.sleep(0.05); os.kill(os.getpid(), signal.SIGSTOP); there.send(b"x"); os._exit(0)
there.close()
cache = threading.Lock()
def update():
    with cache:
        here.send(b"get")
        here.recv(100)
def tick():
    while True:
        time.sleep(0.2)
threading.Thread(target=tick, daemon=True).start()
updater = threading.Thread(target=update)
updater.start()
time.sleep(0.2)
with cache:
    print("fresh")
