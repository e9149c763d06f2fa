// SPDX-License-Identifier: MIT
//! Imports arbitrary bytes as a Perfetto trace: no panic, bounded memory, and what is written can
//! be read.
//!
//! Random changes do not make zlib streams: inputs of odd length are the inside of a compressed
//! packet.

use std::io::Write;

use super::imported;
use flate2::{write::ZlibEncoder, Compression};
use prost::encoding::encode_varint;

/// `data` as field `number`, of bytes.
fn field(number: u64, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_varint(number << 3 | 2, &mut bytes);
    encode_varint(data.len() as u64, &mut bytes);
    bytes.extend_from_slice(data);
    bytes
}

/// See the module.
pub fn run(data: &[u8]) {
    let mut bytes = data.to_vec();
    if bytes.len() % 2 == 1 {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(data).expect("written to memory");
        let packed = encoder.finish().expect("written to memory");
        bytes = field(1, &field(50, &packed));
    } else if let Some(key) = bytes.first_mut() {
        *key = 0x0a;
    }
    imported::check(&bytes);
}
