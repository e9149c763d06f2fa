# SPDX-License-Identifier: MIT
# --- Places and waits, as they are in the process at hand
# ------------------------------------------

import re
import struct
import time


def visible(text):
    """The text without characters that a terminal acts on: names come from the recorded program's
    files.
    """
    return "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in text)


def mapping_of(pid, module):
    """(path, lowest address) of a mapped file by its name; None before it is loaded."""
    found = None
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            words = line.split(maxsplit=5)
            if len(words) == 6 and words[5].strip().rsplit("/", 1)[-1] == module:
                start = int(words[0].split("-")[0], 16)
                if found is None or start < found[1]:
                    found = (words[5].strip(), start)
    return found


def read_elf(path):
    """Entry point and lowest address in the file, both as linked."""
    with open_regular(path) as file:
        header = file.read(64)
        entry, table = struct.unpack_from("<QQ", header, 24)
        size, count = struct.unpack_from("<HH", header, 54)
        file.seek(table)
        lowest = None
        for _ in range(count):
            kind, _, _, address = struct.unpack_from("<IIQQ", file.read(size))
            if kind == 1 and (lowest is None or address < lowest):
                lowest = address
    return entry, (lowest or 0) & ~0xFFF


def address_of(pid, place):
    """Where a module's offset is in the process; None before the module is loaded."""
    mapped = mapping_of(pid, place["module"])
    if mapped is None:
        return None
    path, start = mapped
    return start - read_elf(path)[1] + place["offset"]


def entry_of(pid):
    """The program's first own instruction: what it was linked with is loaded by then."""
    path = f"/proc/{pid}/exe"
    import os

    name = os.readlink(path).rsplit("/", 1)[-1]
    _, start = mapping_of(pid, name)
    entry, lowest = read_elf(path)
    return start - lowest + entry


def operand_address(text, next_pc, register):
    """The address that an instruction's memory operand (Intel syntax) has; None without one.

    ``register(name)`` gives a register's value.
    """
    segment = re.search(r"\b(fs|gs):", text)
    inside = re.search(r"\[([^\]]*)\]", text)
    absolute = re.search(r"\b(?:fs|gs):(0x[0-9a-f]+)", text)
    if inside is None and absolute is None:
        return None
    total = register(segment.group(1) + "_base") if segment else 0
    if inside is None:
        return (total + int(absolute.group(1), 16)) % 2**64
    for sign, term in re.findall(r"([+-]?)([^+-]+)", inside.group(1).replace(" ", "")):
        value = 1
        for factor in term.split("*"):
            if factor == "rip":
                value *= next_pc
            elif re.fullmatch(r"0x[0-9a-f]+|[0-9]+", factor):
                value *= int(factor, 0)
            elif re.fullmatch(r"[a-z][a-z0-9]*", factor):
                value *= register(factor)
            else:
                return None
        total += -value if sign == "-" else value
    return total % 2**64


class Waits:
    """Which thread's wait is the one for good: it reads one address again and again for PATIENCE
    seconds.

    The recorded run's count of visits does not tell it: in another run, waits that go by take other
    numbers of rounds.
    """

    PATIENCE = 1.0

    def __init__(self):
        self.begun = {}

    def lasts(self, thread, address):
        """Whether the thread, which is about to read the address, has read nothing else there for
        long enough.
        """
        known, since = self.begun.get(thread, (None, 0.0))
        now = time.monotonic()
        if known != address:
            self.begun[thread] = (address, now)
            return False
        return now - since >= self.PATIENCE
