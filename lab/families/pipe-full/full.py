# SPDX-License-Identifier: MIT
import subprocess
import sys
import time

from lab_truth import ready, role

child = subprocess.Popen([sys.executable, "-c", "print('x' * 10_000_000)"], stdout=subprocess.PIPE)
time.sleep(0.5)
role("waiter")
ready()
child.wait()
