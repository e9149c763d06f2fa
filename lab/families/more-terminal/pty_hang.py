# SPDX-License-Identifier: MIT
# pty_hang.py TTYSECS -- COMMAND: runs COMMAND on a pty as a process that ignores SIGHUP, closes the
# master after a moment; prints the pid line; holds.
import os, sys, pty, time, signal, subprocess, threading

after = float(sys.argv[1])
cmd = sys.argv[3:]
m, s = os.openpty()


def pre():
    os.setsid() if os.environ.get("OWN_SESSION") else None
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


p = subprocess.Popen(cmd, stdin=s, stdout=s, stderr=s, preexec_fn=pre)
os.close(s)


def drain():
    try:
        while True:
            if not os.read(m, 65536):
                break
    except OSError:
        pass


import select

t = time.time()
while time.time() - t < after:
    r, _, _ = select.select([m], [], [], 0.1)
    if r:
        try:
            os.read(m, 65536)
        except OSError:
            break
os.close(m)
time.sleep(0.5)
print(f"pid {p.pid} spinning_tid {p.pid}", flush=True)


def stop(*a):
    p.kill()
    sys.exit(0)


signal.signal(signal.SIGTERM, stop)
try:
    p.wait(timeout=float(os.environ.get("DUR", "60")))
except subprocess.TimeoutExpired:
    pass
p.kill()
print("exit", p.wait())
