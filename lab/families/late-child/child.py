# SPDX-License-Identifier: MIT
import os, subprocess, time, threading


def beat():
    while True:
        time.sleep(0.01)


threading.Thread(target=beat, daemon=True).start()
for i in range(5):
    subprocess.run(["sh", "-c", "sleep 0.01; true"])
    time.sleep(0.02)
last = subprocess.Popen(["sh", "-c", "sleep 0.9; true"])
time.sleep(0.2)
print(int(open(f"/proc/{last.pid}/task/{last.pid}/children").read()), flush=True)
last.wait()
