# SPDX-License-Identifier: MIT
# at the end of a stream a loop goes on for ever; nothing outside of it ends it
import io, os

B = {}


def b_(s):
    bc = B
    if s in bc:
        return bc[s]
    r = s.encode("latin-1")
    if len(s) < 2:
        bc[s] = r
    return r


print("pid", os.getpid(), flush=True)
WHITE = tuple(b" ")


class Reader:
    def image(self, stream):
        data = b_("")
        while True:
            tok = stream.read(1)
            if tok == b_("E"):
                tok2 = stream.read(1)
                if tok2 == b_("I"):
                    tok3 = stream.read(1)
                    info = tok + tok2
                    space = False
                    while tok3 in WHITE:
                        space = True
                        info += tok3
                        tok3 = stream.read(1)
                    if tok3 == b_("Q") and space:
                        stream.seek(-1, 1)
                        break
                    else:
                        stream.seek(-1, 1)
                        data += info
                else:
                    stream.seek(-1, 1)
                    data += tok
            else:
                data += tok
        return data


Reader().image(io.BytesIO(b""))
