# SPDX-License-Identifier: MIT
import re

from lab_truth import ready, role

LINK = re.compile(r"(https?://)?(([a-z0-9-]+)*\\.?)*/(\\w+/?)*")

role("waiter")
ready()
print(LINK.fullmatch("http://" + "a" * 60 + "!"))
