# SPDX-License-Identifier: MIT
def read():
    from settings import DEFAULTS  # waits for the module's lock

    return DEFAULTS
