# SPDX-License-Identifier: MIT
from importlib.machinery import ModuleSpec

import py
from lab_truth import ready, role

py.__spec__ = ModuleSpec("py", None, is_package=True)  # this py is older than Python 3.11
from py._path.svnwc import rex_blame

role("waiter")
ready()
print(rex_blame.match("1" * 400_000))
