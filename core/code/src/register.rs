// SPDX-License-Identifier: MIT
//! General registers: DWARF's numbers and the instruction set's.

use gimli::Register;

/// By DWARF number (System V ABI, AMD64 supplement, figure 3.36): rax rdx rcx rbx rsi
/// rdi rbp rsp, then r8 and up.
const BY_DWARF: [u8; 16] = [0, 2, 1, 3, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];

/// The stack pointer, in x86 numbering.
pub(crate) const RSP: u8 = 4;

/// The frame pointer, in x86 numbering.
pub(crate) const RBP: u8 = 5;

/// In x86 numbering; `None` for others than general registers.
pub(crate) fn from_dwarf(register: Register) -> Option<u8> {
    BY_DWARF.get(usize::from(register.0)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dwarf_s_numbers_are_translated() {
        use gimli::X86_64;
        let both = [
            (X86_64::RAX, 0),
            (X86_64::RCX, 1),
            (X86_64::RDX, 2),
            (X86_64::RBX, 3),
            (X86_64::RSP, RSP),
            (X86_64::RBP, RBP),
            (X86_64::RSI, 6),
            (X86_64::RDI, 7),
            (X86_64::R15, 15),
        ];
        for (dwarf, x86) in both {
            assert_eq!(from_dwarf(dwarf), Some(x86));
        }
        assert_eq!(from_dwarf(X86_64::XMM0), None);
    }
}
