# SPDX-License-Identifier: MIT
import subprocess
import sys
import time

import truth

child = subprocess.Popen([sys.executable, "-c", "print('x' * 10_000_000)"], stdout=subprocess.PIPE)
time.sleep(0.5)
truth.role("waiter")
truth.truth(f"role child {child.pid}")
truth.ready()
child.wait()
