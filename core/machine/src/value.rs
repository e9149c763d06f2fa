// SPDX-License-Identifier: MIT
//! Partly known numbers, and the registers, flags and stored memory of one thread.

use serde::{Deserialize, Serialize};

/// Carry flag, in rflags layout (as all the following).
pub const CF: u64 = 1;
/// Parity flag.
pub const PF: u64 = 1 << 2;
/// Auxiliary carry flag.
pub const AF: u64 = 1 << 4;
/// Zero flag.
pub const ZF: u64 = 1 << 6;
/// Sign flag.
pub const SF: u64 = 1 << 7;
/// Direction flag.
pub const DF: u64 = 1 << 10;
/// Overflow flag.
pub const OF: u64 = 1 << 11;
/// The flags arithmetic sets.
pub const STATUS: u64 = CF | PF | AF | ZF | SF | OF;

/// General registers that a call need not preserve (System V ABI, 3.2.1).
pub const CALL_CLOBBERS: [u8; 9] = [0, 1, 2, 6, 7, 8, 9, 10, 11];

/// Lowest `bits` bits set.
#[inline]
pub fn mask(bits: u32) -> u64 {
    if bits >= 64 {
        u64::MAX
    } else {
        (1 << bits) - 1
    }
}

/// 64 bits of which those in `known` are certain; unknown bits are 0 in `bits`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Value {
    /// The bits that are known; 0 elsewhere.
    pub bits: u64,
    /// Which bits are known.
    pub known: u64,
}

impl Value {
    /// No bit is known.
    pub const UNKNOWN: Value = Value { bits: 0, known: 0 };

    /// All bits are known.
    #[inline]
    pub fn of(bits: u64) -> Value {
        Value {
            bits,
            known: u64::MAX,
        }
    }

    /// The low `bits` bits as a number, when all of them are known.
    #[inline]
    pub fn get(self, bits: u32) -> Option<u64> {
        let m = mask(bits);
        (self.known & m == m).then_some(self.bits & m)
    }

    /// Only the low bits stay; the others are known zero.
    #[inline]
    pub fn truncate(self, bits: u32) -> Value {
        let m = mask(bits);
        Value {
            bits: self.bits & m,
            known: self.known | !m,
        }
    }

    /// `self` with `bits` bits at `shift` replaced by the low bits of `part`.
    #[inline]
    pub fn insert(self, part: Value, shift: u32, bits: u32) -> Value {
        let m = mask(bits) << shift;
        Value {
            bits: self.bits & !m | part.bits << shift & m,
            known: self.known & !m | part.known << shift & m,
        }
    }

    /// Where either bit is known to be 0, so is the result's.
    #[inline]
    pub fn and(self, other: Value) -> Value {
        Value {
            bits: self.bits & other.bits,
            known: self.known & other.known | self.known & !self.bits | other.known & !other.bits,
        }
    }

    /// Where either bit is known to be 1, so is the result's.
    #[inline]
    pub fn or(self, other: Value) -> Value {
        Value {
            bits: self.bits | other.bits,
            known: self.known & other.known | self.bits | other.bits,
        }
    }

    /// Known where both are.
    #[inline]
    pub fn xor(self, other: Value) -> Value {
        let known = self.known & other.known;
        Value {
            bits: (self.bits ^ other.bits) & known,
            known,
        }
    }

    /// Shifted to the right; the bits that come in are unknown.
    #[inline]
    pub fn shift_right(self, shift: u32) -> Value {
        Value {
            bits: self.bits >> shift,
            known: self.known >> shift,
        }
    }
}

impl From<Option<u64>> for Value {
    fn from(value: Option<u64>) -> Value {
        value.map_or(Value::UNKNOWN, Value::of)
    }
}

/// Lines of the shadow: 64 KiB of a stack fit without collisions.
const LINES: usize = 8192;

/// What this thread stored, by aligned 8 bytes. A small direct-mapped table: a
/// collision forgets, so that memory stays bounded and a look-up costs nothing.
/// Clearing is frequent (any store to an unknown address): it begins a new epoch
/// instead of touching the lines.
#[derive(Clone)]
pub struct Shadow {
    /// What the line holds ([`Shadow::mark`]), and its bytes.
    lines: Box<[(u64, Value)]>,
    epoch: u64,
}

/// Aligned 8 bytes in a user's address space number fewer than this; the epoch stands above.
const EPOCH: u64 = 1 << 45;

impl Default for Shadow {
    fn default() -> Self {
        Shadow {
            lines: vec![(u64::MAX, Value::UNKNOWN); LINES].into(),
            epoch: 0,
        }
    }
}

impl Shadow {
    #[inline]
    fn line(&mut self, address: u64) -> &mut (u64, Value) {
        &mut self.lines[(address >> 3) as usize % LINES]
    }

    #[inline]
    fn mark(&self, address: u64) -> u64 {
        (address >> 3) % EPOCH + self.epoch
    }

    /// `bits` is a multiple of 8, up to 64.
    #[inline]
    pub fn load(&mut self, address: u64, bits: u32) -> Value {
        let offset = (address & 7) as u32 * 8;
        let line = *self.line(address);
        let mut value = Value::UNKNOWN;
        if line.0 == self.mark(address) {
            value = line.1.shift_right(offset);
        }
        if offset + bits > 64 {
            let low = 64 - offset;
            let next = *self.line(address.wrapping_add(8));
            let high = if next.0 == self.mark(address.wrapping_add(8)) {
                next.1
            } else {
                Value::UNKNOWN
            };
            value = value.insert(high, low, bits - low);
        }
        Value {
            bits: value.bits & mask(bits),
            known: value.known & mask(bits),
        }
    }

    /// Remembers the lowest `bits` bits of a store.
    #[inline]
    pub fn store(&mut self, address: u64, bits: u32, value: Value) {
        let offset = (address & 7) as u32 * 8;
        let low = bits.min(64 - offset);
        self.store_line(address, value, offset, low);
        if bits > low {
            self.store_line(
                address.wrapping_add(8),
                value.shift_right(low),
                0,
                bits - low,
            );
        }
    }

    fn store_line(&mut self, address: u64, value: Value, offset: u32, bits: u32) {
        let mark = self.mark(address);
        let line = self.line(address);
        if line.0 != mark {
            *line = (mark, Value::UNKNOWN);
        }
        line.1 = line.1.insert(value, offset, bits);
    }

    /// Nothing is known of `bytes` bytes any more.
    pub fn forget(&mut self, address: u64, bytes: u64) {
        if bytes > (LINES * 8) as u64 {
            self.clear();
            return;
        }
        let mut at = address & !7;
        while at < address.saturating_add(bytes) {
            let mark = self.mark(at);
            let line = self.line(at);
            if line.0 == mark {
                *line = (u64::MAX, Value::UNKNOWN);
            }
            at = at.saturating_add(8);
        }
    }

    /// Forgets all stores.
    pub fn clear(&mut self) {
        match self.epoch.checked_add(EPOCH) {
            Some(epoch) if epoch < u64::MAX - EPOCH => self.epoch = epoch,
            _ => {
                self.lines.fill((u64::MAX, Value::UNKNOWN));
                self.epoch = 0;
            }
        }
    }
}

/// A thread's state as far as it is known.
#[derive(Clone, Default)]
pub struct Machine {
    /// x86 order: rax rcx rdx rbx rsp rbp rsi rdi r8..r15.
    pub registers: [Value; 16],
    /// rflags layout.
    pub flags: Value,
    /// Base address of the fs segment, the thread pointer.
    pub fs_base: Option<u64>,
    /// Base address of the gs segment.
    pub gs_base: Option<u64>,
    /// Memory, as far as the thread stored to it.
    pub shadow: Shadow,
}

impl Machine {
    /// From here on everything but the segment bases is unknown.
    pub fn forget(&mut self) {
        self.registers = [Value::UNKNOWN; 16];
        self.flags = Value::UNKNOWN;
        self.shadow.clear();
    }

    /// An unseen call ran: what the calling convention preserves is as before.
    pub fn forget_call(&mut self) {
        for number in CALL_CLOBBERS {
            self.registers[usize::from(number)] = Value::UNKNOWN;
        }
        self.flags = Value::UNKNOWN;
        self.shadow.clear();
    }

    /// A flag, as far as it is known.
    #[inline]
    pub fn flag(&self, flag: u64) -> Option<bool> {
        (self.flags.known & flag != 0).then_some(self.flags.bits & flag != 0)
    }

    /// Sets a flag; `None`: to a state that is not known.
    #[inline]
    pub fn set_flag(&mut self, flag: u64, on: Option<bool>) {
        self.flags.known = self.flags.known & !flag | if on.is_some() { flag } else { 0 };
        self.flags.bits = self.flags.bits & !flag | if on == Some(true) { flag } else { 0 };
    }

    /// All of `which` at once, from rflags bits.
    #[inline]
    pub fn set_flags(&mut self, which: u64, bits: u64) {
        self.flags.known |= which;
        self.flags.bits = self.flags.bits & !which | bits & which;
    }

    /// These flags are unknown from here.
    #[inline]
    pub fn forget_flags(&mut self, which: u64) {
        self.flags.known &= !which;
        self.flags.bits &= !which;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shadow_keeps_bytes_across_lines() {
        let mut shadow = Shadow::default();
        shadow.store(0x1005, 64, Value::of(0x1122_3344_5566_7788));
        assert_eq!(shadow.load(0x1005, 64).get(64), Some(0x1122_3344_5566_7788));
        assert_eq!(shadow.load(0x1007, 16).get(16), Some(0x5566));
        assert_eq!(shadow.load(0x1004, 16).get(16), None);
        shadow.store(0x1008, 8, Value::UNKNOWN);
        assert_eq!(shadow.load(0x1005, 64).get(64), None);
        assert_eq!(shadow.load(0x1005, 16).get(16), Some(0x7788));
        shadow.forget(0x1000, 8);
        assert_eq!(shadow.load(0x1005, 16).get(16), None);
    }

    #[test]
    fn a_cleared_shadow_knows_nothing_however_often_it_was_cleared() {
        let mut shadow = Shadow::default();
        for turn in 0..3 * (u64::MAX / EPOCH) {
            if turn % 1000 == 0 {
                shadow.store(0x1000, 64, Value::of(turn));
                assert_eq!(shadow.load(0x1000, 64).get(64), Some(turn));
            }
            shadow.clear();
            assert_eq!(shadow.load(0x1000, 64).known, 0);
        }
    }

    #[test]
    fn parts_of_a_value_stay_apart() {
        let value = Value::UNKNOWN.insert(Value::of(0xab), 8, 8);
        assert_eq!(value.shift_right(8).get(8), Some(0xab));
        assert_eq!(value.get(8), None);
        assert_eq!(value.truncate(32).known, !0xffff_ffff | 0xff00);
    }
}
