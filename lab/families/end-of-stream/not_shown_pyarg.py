# SPDX-License-Identifier: MIT
# a loop at the end of a stream; it calls a Python function in each round
import io, os

KNOWN = {}


def letter(s):
    if s in KNOWN:
        return KNOWN[s]
    KNOWN[s] = s.encode()
    return KNOWN[s]


print("pid", os.getpid(), flush=True)


def read(stream):
    data = b""
    while True:
        t = stream.read(1)
        if t == letter("E"):
            t2 = stream.read(1)
            if t2 == letter("I"):
                break
            data += t + t2
        else:
            data += t
    return data


read(io.BytesIO(b""))
