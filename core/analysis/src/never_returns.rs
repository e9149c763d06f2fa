// SPDX-License-Identifier: MIT
//! Ways that end in a function which never returns: a bounds check that failed, an assertion, a
//! throw.
//!
//! A loop can be left by them, but that is not what it waits for. Told by the code, not by names:
//! within its extent such a function holds no return that its entry leads to. Blind spots:
//! functions of unknown extent, and of other modules where nobody has called them yet (the linker's
//! table has no address then).

use flagfinder_code::{DataKind, Names};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use rustc_hash::FxHashSet;

use crate::read_code::{instruction, ReadCode, LONGEST};

/// Instructions on the way to such a call.
const SHORT_WAY: usize = 32;
/// Instructions on all ways to one.
const ALL_WAYS: usize = 64;
/// Functions that hand over to each other.
const DEEP: u32 = 3;

/// Do all ways from `pc` lead to one? (What is reported before the program ends may depend on the
/// error.)
pub fn never_returns(pc: u64, names: &Names, read: &ReadCode) -> bool {
    let mut seen = FxHashSet::default();
    let mut work = vec![pc];
    let mut ends = false;
    while let Some(mut pc) = work.pop() {
        while seen.insert(pc) {
            if seen.len() > ALL_WAYS {
                return false;
            }
            let code = instruction(pc, read);
            pc = code.next_ip();
            match code.flow_control() {
                FlowControl::Exception => {
                    ends = true;
                    break;
                }
                FlowControl::Call | FlowControl::IndirectCall => {
                    let callee = target(&code, read);
                    if callee.is_some_and(|callee| ends_it_all(callee, names, read, DEEP)) {
                        ends = true;
                        break;
                    }
                }
                FlowControl::UnconditionalBranch => pc = code.near_branch_target(),
                FlowControl::ConditionalBranch => work.push(code.near_branch_target()),
                FlowControl::Next => {}
                _ => return false,
            }
        }
    }
    ends
}

/// Does the way from `pc` only hand texts to functions and then return a number? A precondition
/// that does not hold is reported so (`g_return_val_if_fail`, OpenSSL's errors).
pub fn reports(mut pc: u64, names: &Names, read: &ReadCode) -> bool {
    let (mut text, mut told) = (false, false);
    let mut constants: FxHashSet<Register> = FxHashSet::default();
    for _ in 0..SHORT_WAY {
        let code = instruction(pc, read);
        pc = code.next_ip();
        match code.flow_control() {
            FlowControl::Return => return told && constants.contains(&Register::RAX),
            FlowControl::UnconditionalBranch => pc = code.near_branch_target(),
            FlowControl::Call | FlowControl::IndirectCall => {
                told |= text;
                constants.remove(&Register::RAX);
            }
            FlowControl::Next => {
                let target = code.op0_register().full_register();
                if code.mnemonic() == Mnemonic::Lea && code.is_ip_rel_memory_operand() {
                    let kind = names.data(code.ip_rel_memory_address()).kind;
                    text |= kind == DataKind::ReadOnly;
                }
                match is_constant(&code, &constants) {
                    true => constants.insert(target),
                    false => constants.remove(&target),
                };
                let loads = (0..code.op_count()).any(|op| code.op_kind(op) == OpKind::Memory);
                let restores = matches!(code.mnemonic(), Mnemonic::Pop | Mnemonic::Add);
                if loads && code.mnemonic() != Mnemonic::Lea && !restores {
                    return false;
                }
            }
            _ => return false,
        }
    }
    false
}

/// `mov eax, 5`, `xor eax, eax`, `mov eax, ebp` where that one is.
fn is_constant(code: &Instruction, constants: &FxHashSet<Register>) -> bool {
    let source = code.op1_register();
    match (code.mnemonic(), code.op1_kind()) {
        (Mnemonic::Xor, OpKind::Register) => code.op0_register() == source,
        (Mnemonic::Mov, OpKind::Register) => constants.contains(&source.full_register()),
        (Mnemonic::Mov, kind) => kind != OpKind::Memory,
        _ => false,
    }
}

/// Where a call or jump goes: by the instruction, or by a word of the linker's, also over its stub.
fn target(code: &Instruction, read: &ReadCode) -> Option<u64> {
    match code.flow_control() {
        FlowControl::Call | FlowControl::UnconditionalBranch => {
            let to = code.near_branch_target();
            let stub = instruction(to, read);
            let jumps = stub.flow_control() == FlowControl::IndirectBranch;
            Some(if jumps { target(&stub, read)? } else { to })
        }
        FlowControl::IndirectCall | FlowControl::IndirectBranch
            if code.is_ip_rel_memory_operand() =>
        {
            let mut word = [0u8; 8];
            let whole = read(code.ip_rel_memory_address(), &mut word) == word.len();
            whole.then(|| u64::from_le_bytes(word))
        }
        _ => None,
    }
}

/// Is there no way from the function's entry to a return?
fn ends_it_all(entry: u64, names: &Names, read: &ReadCode, depth: u32) -> bool {
    let extent = names.function(entry);
    let Some((start, end)) =
        extent.filter(|(start, end)| *start == entry && end - start <= LONGEST)
    else {
        return false;
    };
    let mut code = vec![0u8; (end - start) as usize];
    let got = read(start, &mut code);
    if got < code.len() {
        return false;
    }
    let mut seen = FxHashSet::default();
    let mut work = vec![start];
    while let Some(pc) = work.pop() {
        if !(start..end).contains(&pc) || !seen.insert(pc) {
            continue;
        }
        let bytes = &code[(pc - start) as usize..];
        let instruction = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE).decode();
        match instruction.flow_control() {
            FlowControl::Return => return false,
            FlowControl::IndirectBranch => return false,
            FlowControl::Exception => {}
            FlowControl::UnconditionalBranch => {
                let to = instruction.near_branch_target();
                let leaves = !(start..end).contains(&to);
                if leaves && !(depth > 0 && ends_it_all(to, names, read, depth - 1)) {
                    return false;
                }
                work.push(to);
            }
            FlowControl::ConditionalBranch => {
                let to = instruction.near_branch_target();
                if !(start..end).contains(&to) {
                    return false;
                }
                work.extend([to, instruction.next_ip()]);
            }
            // Assembler code may restore its frame all the same, behind a call that never returns
            // (Go's failed bounds).
            FlowControl::Call if depth > 0 => {
                let callee = target(&instruction, read);
                if !callee.is_some_and(|callee| ends_it_all(callee, names, read, 0)) {
                    work.push(instruction.next_ip());
                }
            }
            _ => work.push(instruction.next_ip()),
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use flagfinder_code::NamesInput;

    use super::*;

    const START: u64 = 0x1000;

    fn dies(code: &[u8]) -> bool {
        let read = |address: u64, buffer: &mut [u8]| {
            let at = address.checked_sub(START).map(|at| at as usize);
            let bytes = at.and_then(|at| code.get(at..)).unwrap_or(&[]);
            let got = bytes.len().min(buffer.len());
            buffer[..got].copy_from_slice(&bytes[..got]);
            got
        };
        never_returns(START, &Names::new(NamesInput::default()), &read)
    }

    #[test]
    fn all_ways_must_end_there() {
        // test eax, eax; je +3; nop; ud2; ud2
        assert!(dies(&[
            0x85, 0xc0, 0x74, 0x03, 0x90, 0x0f, 0x0b, 0x0f, 0x0b
        ]));
        // test eax, eax; je +3; nop; ud2; ret
        assert!(!dies(&[0x85, 0xc0, 0x74, 0x03, 0x90, 0x0f, 0x0b, 0xc3]));
        // jmp to itself: a loop, which somebody may wait in
        assert!(!dies(&[0xeb, 0xfe]));
    }

    // ff_dies does not return, and what stands behind a call of it is never reached; ff_returns
    // does.
    std::arch::global_asm!(
        ".globl ff_dies, ff_hands_over, ff_calls, ff_returns",
        ".type ff_dies, @function; ff_dies: ud2; .size ff_dies, . - ff_dies",
        ".type ff_hands_over, @function; ff_hands_over: push rbp; call ff_dies; pop rbp; ret",
        ".size ff_hands_over, . - ff_hands_over",
        ".type ff_calls, @function; ff_calls: push rbp; call ff_returns; pop rbp; ret",
        ".size ff_calls, . - ff_calls",
        ".type ff_returns, @function; ff_returns: ret; .size ff_returns, . - ff_returns",
    );
    extern "C" {
        fn ff_hands_over();
        fn ff_calls();
    }

    #[test]
    fn what_follows_a_call_that_never_returns_is_no_way_out() {
        let names = NamesInput::from_live(std::process::id()).expect("its own /proc");
        let names = Names::new(names);
        let callee: unsafe extern "C" fn() = ff_hands_over;
        let extent = names.function(callee as usize as u64);
        assert!(extent.is_some(), "this test has symbols");
        let ends = |callee: unsafe extern "C" fn()| {
            let callee = callee as usize as u64;
            // A call of it, somewhere near, and a return: what the program itself has there might
            // be a way that ends.
            let at = callee - 0x1000;
            let distance = (callee.wrapping_sub(at + 5) as i32).to_le_bytes();
            let call: Vec<u8> = [0xe8].into_iter().chain(distance).chain([0xc3]).collect();
            let read = |address: u64, buffer: &mut [u8]| {
                let inside = address.checked_sub(at).map(|skip| skip as usize);
                let bytes = match inside.and_then(|skip| call.get(skip..)) {
                    Some(bytes) if !bytes.is_empty() => bytes,
                    // SAFETY: code of this program, which is longer than any of these functions.
                    _ => unsafe {
                        std::slice::from_raw_parts(address as usize as *const u8, buffer.len())
                    },
                };
                let got = bytes.len().min(buffer.len());
                buffer[..got].copy_from_slice(&bytes[..got]);
                got
            };
            never_returns(at, &names, &read)
        };
        assert!(ends(ff_hands_over));
        assert!(!ends(ff_calls));
    }
}
