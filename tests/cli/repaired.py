# SPDX-License-Identifier: MIT
"""Damage to recordings behind which all checksums are right: what is wrong must be found by the
decoders.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import xxhash
import zstandard

_FILE_HEADER = 64
# docs/trace-format.md: magic, kind, codec, flags, pid, tid, eight u64, regs_valid, header checksum,
# image_ts
_HEADER = struct.Struct("<IHBBII8QIIQ")
_CODEC, _RAW, _STORED, _PAYLOAD_CHECKSUM, _HEADER_CHECKSUM = 2, 8, 9, 13, 15
_PLAIN = 0


@dataclass
class Section:
    """The header's fields in order, and the payload, unpacked."""

    fields: list[int]
    payload: bytearray

    def packed(self) -> bytes:
        """As it stands in a file, with right lengths and checksums."""
        fields, stored = self.fields.copy(), bytes(self.payload)
        if fields[_CODEC] != _PLAIN:
            stored = zstandard.compress(stored)
        else:
            fields[_RAW] = len(stored)
        fields[_STORED] = len(stored)
        fields[_PAYLOAD_CHECKSUM] = xxhash.xxh3_64_intdigest(stored)
        fields[_HEADER_CHECKSUM] = 0
        fields[_HEADER_CHECKSUM] = xxhash.xxh3_64_intdigest(_HEADER.pack(*fields)) & 0xFFFFFFFF
        return _HEADER.pack(*fields) + stored


def sections(trace: bytes) -> Iterator[Section]:
    """Those of a sound recording."""
    at = _FILE_HEADER
    while at < len(trace):
        fields = list(_HEADER.unpack_from(trace, at))
        at += _HEADER.size
        stored = trace[at : at + fields[_STORED]]
        at += len(stored)
        plain = stored if fields[_CODEC] == _PLAIN else zstandard.decompress(stored)
        yield Section(fields, bytearray(plain))


def damaged(trace: bytes, chance: random.Random, flips: int) -> bytes:
    """Flips bits in payloads, half of them near their beginnings, and in one header."""
    found = list(sections(trace))
    for _ in range(flips):
        section = chance.choice([section for section in found if section.payload])
        end = min(256, len(section.payload)) if chance.random() < 0.5 else len(section.payload)
        section.payload[chance.randrange(end)] ^= 1 << chance.randrange(8)
    header = chance.choice(found).fields
    # Any field but the magic number, of which each has at least eight bits that mean something.
    header[chance.choice([1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16])] ^= 1 << chance.randrange(8)
    return trace[:_FILE_HEADER] + b"".join(section.packed() for section in found)
