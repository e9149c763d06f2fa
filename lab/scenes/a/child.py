import subprocess, time, threading
def beat():
    while True: time.sleep(.01)
threading.Thread(target=beat, daemon=True).start()
for i in range(5):
    subprocess.run(["sh","-c","sleep 0.01; true"])
    time.sleep(.02)
subprocess.run(["sh","-c","sleep 0.9; true"])
