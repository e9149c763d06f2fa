// SPDX-License-Identifier: MIT
//! Changes of inputs for the short runs, the same ones each time. Long runs are libFuzzer's, which
//! sees what a change reaches.

use fastrand::Rng;

/// Most bytes of an input.
const LONGEST: usize = 64 << 10;
/// Numbers at which arithmetic turns wrong.
const EDGES: [u64; 12] = [
    0,
    1,
    7,
    0x7f,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0xffff_ffff_ffff_f000,
    u64::MAX,
];

/// One of the seeds, changed in some places, or a part of it in front of a part of another.
pub fn mutate(seeds: &[Vec<u8>], random: &mut Rng) -> Vec<u8> {
    let Some(mut bytes) = random.choice(seeds).cloned() else {
        return Vec::new();
    };
    if random.u8(..8) == 0 {
        let other = random.choice(seeds).map_or(&[][..], |other| &other[..]);
        let from = random.usize(..=other.len());
        bytes.truncate(random.usize(..=bytes.len()));
        bytes.extend_from_slice(&other[from..]);
    }
    for _ in 0..1 << random.u8(..6) {
        change(&mut bytes, random);
    }
    bytes.truncate(LONGEST);
    bytes
}

fn change(bytes: &mut Vec<u8>, random: &mut Rng) {
    let at = random.usize(..=bytes.len());
    let behind = bytes.len() - at;
    let width = [1, 2, 4, 8][random.usize(..4)].min(behind);
    match random.u8(..7) {
        0 | 1 => {
            let edge = random.choice(EDGES).unwrap_or_default();
            bytes[at..at + width].copy_from_slice(&edge.to_le_bytes()[..width]);
        }
        2 if behind > 0 => bytes[at] ^= 1 << random.u8(..8),
        3 if behind > 0 => bytes[at] = bytes[at].wrapping_add(random.u8(..)),
        4 => drop(bytes.drain(at..at + random.usize(..=behind.min(64)))),
        5 => {
            // A piece stands there twice.
            let piece = bytes[at..at + random.usize(..=behind.min(64))].to_vec();
            bytes.splice(at..at, piece);
        }
        _ => bytes.insert(at, random.u8(..)),
    }
}
