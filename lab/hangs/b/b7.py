import threading, time
changed = threading.Condition()
def refresh():
    with changed:
        changed.notify_all()
def follow():
    time.sleep(0.15)
    with changed:
        changed.wait()
def pulse():
    while True:
        time.sleep(0.1)
threading.Thread(target=pulse, daemon=True).start()
follower = threading.Thread(target=follow)
follower.start()
refresh()
follower.join()
