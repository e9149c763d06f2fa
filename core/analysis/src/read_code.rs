// SPDX-License-Identifier: MIT
//! Reading code that the window does not hold, from the process or from its file.

use iced_x86::{Decoder, DecoderOptions, Instruction};

/// Reads code; returns how many bytes could be read.
pub type ReadCode<'a> = dyn Fn(u64, &mut [u8]) -> usize + 'a;

/// A longer function is not followed.
pub const LONGEST: u64 = 64 << 10;

/// The instruction that stands there now.
pub fn instruction(pc: u64, read: &ReadCode) -> Instruction {
    let mut bytes = [0u8; 15];
    let got = read(pc, &mut bytes);
    Decoder::with_ip(64, &bytes[..got], pc, DecoderOptions::NONE).decode()
}
