// SPDX-License-Identifier: MIT
//! The call stack of a blocked thread, without touching it: its stack pointer is known from
//! /proc, its other registers are not, so return addresses are looked for.
//!
//! A word counts when it points behind a call instruction in executable memory. Where that
//! call is direct, its target must be the function of the frame below, or a linkage stub;
//! that drops most of what earlier calls left. Blind spot: a stale word of an indirect call.

use flagfinder_code::{AddressSpace, Code, Names};

use flagfinder_waits::proc::Call;

const SCANNED: usize = 64 << 10;
const MOST_FRAMES: usize = 24;
const LONGEST_CALL: usize = 7;

/// Innermost first; the first is where the system call was made.
pub fn scan(call: &Call, memory: &dyn AddressSpace, names: &Names) -> Vec<Code> {
    let outer = return_addresses(call.sp, call.pc, memory, names);
    let all = std::iter::once(call.pc).chain(outer);
    all.map(|address| names.caller(address)).collect()
}

/// Where the calls go on after they return; the innermost call, which stands at `pc`, is left out.
pub fn return_addresses(sp: u64, pc: u64, memory: &dyn AddressSpace, names: &Names) -> Vec<u64> {
    let mut found = Vec::new();
    let mut inner = pc;
    let mut words = vec![0u8; SCANNED];
    let got = memory.read(sp, &mut words);
    for word in words[..got].chunks_exact(8) {
        let address = u64::from_le_bytes(word.try_into().unwrap_or_default());
        if is_executable(names, address) && is_return(address, inner, memory, names) {
            found.push(address);
            inner = address;
            if found.len() + 1 == MOST_FRAMES {
                break;
            }
        }
    }
    found
}

fn is_executable(names: &Names, address: u64) -> bool {
    let maps = &names.input().maps;
    let mapping = maps.iter().rev().find_map(|maps| maps.at(address));
    mapping.is_some_and(|m| m.executable)
}

fn is_return(address: u64, inner: u64, memory: &dyn AddressSpace, names: &Names) -> bool {
    let mut bytes = [0u8; LONGEST_CALL];
    if memory.read(address.wrapping_sub(LONGEST_CALL as u64), &mut bytes) != LONGEST_CALL {
        return false;
    }
    if bytes[2] == 0xe8 {
        let distance = i32::from_le_bytes([bytes[3], bytes[4], bytes[5], bytes[6]]);
        let target = address.wrapping_add_signed(i64::from(distance));
        let calls_inner = match (names.function(target), names.function(inner - 1)) {
            (Some(called), Some(inside)) => called.0 == inside.0,
            _ => is_executable(names, target),
        } || is_stub(target, memory);
        if calls_inner {
            return true;
        }
    }
    // call *reg, call *disp(reg), call *disp(rip), ..: FF /2.
    (2..=LONGEST_CALL).any(|length| {
        let code = &bytes[LONGEST_CALL - length..];
        let shape = (code[1] >> 3) & 7 == 2 && form_length(code) == Some(length);
        code[0] == 0xff && shape
    })
}

/// A linkage stub: `jmp *disp(rip)`, perhaps behind endbr64 and a bnd prefix.
fn is_stub(target: u64, memory: &dyn AddressSpace) -> bool {
    const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    let mut bytes = [0u8; 8];
    let got = memory.read(target, &mut bytes);
    let code = bytes[..got].strip_prefix(&ENDBR64).unwrap_or(&bytes[..got]);
    let code = code.strip_prefix(&[0xf2]).unwrap_or(code);
    code.starts_with(&[0xff, 0x25])
}

/// Length of an FF /2 instruction by its ModRM byte.
fn form_length(code: &[u8]) -> Option<usize> {
    let modrm = *code.get(1)?;
    let sib = usize::from(modrm & 7 == 4);
    Some(match modrm >> 6 {
        3 => 2,
        0 if modrm & 7 == 5 => 6,
        0 if sib == 1 && code.get(2)? & 7 == 5 => 7,
        0 => 2 + sib,
        1 => 3 + sib,
        _ => 6 + sib,
    })
}
