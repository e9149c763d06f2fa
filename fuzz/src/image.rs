// SPDX-License-Identifier: MIT
//! An ELF file with nothing but a piece of code.

/// Where the code stands in memory.
pub const CODE_BASE: u64 = 0x40_0000;
/// Of code that the `tenet` target takes from the front of its input.
pub const CODE_BYTES: usize = 64;

/// An executable for x86-64 whose one segment holds `code` at [`CODE_BASE`]. The layout is that of
/// the System V ABI.
pub fn image(code: &[u8]) -> Vec<u8> {
    const HEADERS: u64 = 64 + 56;
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    let (executable, machine, version) = (2u16, 62u16, 1u32);
    file.extend(executable.to_le_bytes());
    file.extend(machine.to_le_bytes());
    file.extend(version.to_le_bytes());
    for word in [CODE_BASE, 64, 0] {
        file.extend(word.to_le_bytes()); // entry, program headers, section headers
    }
    file.extend(0u32.to_le_bytes());
    for half in [64u16, 56, 1, 64, 0, 0] {
        file.extend(half.to_le_bytes()); // sizes and counts of headers
    }
    let (load, readable_executable) = (1u32, 5u32);
    file.extend(load.to_le_bytes());
    file.extend(readable_executable.to_le_bytes());
    let bytes = code.len() as u64;
    for word in [HEADERS, CODE_BASE, CODE_BASE, bytes, bytes, 0x1000] {
        file.extend(word.to_le_bytes());
    }
    file.extend_from_slice(code);
    file
}
