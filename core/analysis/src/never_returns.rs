// SPDX-License-Identifier: MIT
//! Ways that end in a function which never returns: a bounds check that failed, an assertion, a
//! throw.
//!
//! A loop can be left by them, but that is not what it waits for. Told by the code, not by names:
//! within its extent such a function holds no return that its entry leads to. A function that never
//! returns and gets the argument 0 (`exit(0)`, `pthread_exit(NULL)`) ends what went well: many
//! programs wait for their workers and then end so. Blind spots: functions of unknown extent, and
//! of other modules where nobody has called them yet (the linker's table has no address then); a
//! program that ends with a number of its own.

use flagfinder_code::{DataKind, Names};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use rustc_hash::FxHashSet;

use crate::read_code::{instruction, ReadCode, LONGEST};

/// Most instructions on the way to such a call.
const SHORT_WAY: usize = 32;
/// Most instructions on all ways to one.
const ALL_WAYS: usize = 64;
/// Most functions that hand over to each other.
const DEEP: u32 = 3;

/// Do all ways from `pc` lead to such a call? (What is reported before the program ends may depend
/// on the error.)
pub fn never_returns(pc: u64, names: &Names, read: &ReadCode) -> bool {
    let mut seen = FxHashSet::default();
    let mut work = vec![(pc, false)];
    let mut ends = false;
    while let Some((mut pc, mut told_zero)) = work.pop() {
        while seen.insert(pc) {
            if seen.len() > ALL_WAYS {
                return false;
            }
            let code = instruction(pc, read);
            pc = code.next_ip();
            let zero = told_zero;
            told_zero = tells_zero(&code, zero);
            match code.flow_control() {
                FlowControl::Exception => {
                    ends = true;
                    break;
                }
                FlowControl::Call | FlowControl::IndirectCall => {
                    let callee = target(&code, read);
                    let ended = callee.map_or(End::Returns, |to| end_of(to, names, read, DEEP));
                    match ended.told(zero) {
                        End::Well => return false,
                        End::Fails => {
                            ends = true;
                            break;
                        }
                        End::Returns => {}
                    }
                }
                FlowControl::UnconditionalBranch => pc = code.near_branch_target(),
                FlowControl::ConditionalBranch => {
                    work.push((code.near_branch_target(), told_zero));
                }
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

/// Is the first argument of a call 0 behind the instruction? `before`: it was so before it.
fn tells_zero(code: &Instruction, before: bool) -> bool {
    if matches!(
        code.flow_control(),
        FlowControl::Call | FlowControl::IndirectCall
    ) {
        return false;
    }
    let of_argument = |register: Register| register.full_register() == Register::RDI;
    let writes = code.op_count() > 0
        && code.op0_kind() == OpKind::Register
        && of_argument(code.op0_register())
        && !matches!(
            code.mnemonic(),
            Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push
        );
    if !writes {
        return before;
    }
    match (code.mnemonic(), code.op1_kind()) {
        (Mnemonic::Xor, OpKind::Register) => of_argument(code.op1_register()),
        (Mnemonic::Mov, kind) => {
            kind != OpKind::Memory && code.try_immediate(1).is_ok_and(|number| number == 0)
        }
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

/// How a function ends.
#[derive(Clone, Copy, PartialEq)]
enum End {
    /// It may return, as far as is known.
    Returns,
    /// It never returns, and nothing shows that it ends a program that went well.
    Fails,
    /// It never returns, and ends a program that went well.
    Well,
}

impl End {
    /// The same, if its first argument is 0 or not.
    fn told(self, zero: bool) -> End {
        match self {
            End::Fails if zero => End::Well,
            end => end,
        }
    }
}

/// Is there a way from the function's entry to a return, or to an end that is told 0?
fn end_of(entry: u64, names: &Names, read: &ReadCode, depth: u32) -> End {
    let extent = names.function(entry);
    let Some((start, end)) =
        extent.filter(|(start, end)| *start == entry && end - start <= LONGEST)
    else {
        return End::Returns;
    };
    let mut code = vec![0u8; (end - start) as usize];
    let got = read(start, &mut code);
    if got < code.len() {
        return End::Returns;
    }
    let mut seen = FxHashSet::default();
    let mut work = vec![(start, false)];
    while let Some((pc, zero)) = work.pop() {
        if !(start..end).contains(&pc) || !seen.insert(pc) {
            continue;
        }
        let bytes = &code[(pc - start) as usize..];
        let instruction = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE).decode();
        let told_zero = tells_zero(&instruction, zero);
        match instruction.flow_control() {
            FlowControl::Return => return End::Returns,
            FlowControl::IndirectBranch => return End::Returns,
            FlowControl::Exception => {}
            FlowControl::UnconditionalBranch => {
                let to = instruction.near_branch_target();
                let leaves = !(start..end).contains(&to);
                if leaves {
                    let deeper = depth.checked_sub(1);
                    let ended = deeper.map_or(End::Returns, |deep| end_of(to, names, read, deep));
                    match ended.told(zero) {
                        End::Fails => continue,
                        ended => return ended,
                    }
                }
                work.push((to, told_zero));
            }
            FlowControl::ConditionalBranch => {
                let to = instruction.near_branch_target();
                if !(start..end).contains(&to) {
                    return End::Returns;
                }
                work.extend([(to, told_zero), (instruction.next_ip(), told_zero)]);
            }
            // Assembler code may restore its frame all the same, behind a call that never returns
            // (Go's failed bounds).
            FlowControl::Call if depth > 0 => {
                let callee = target(&instruction, read);
                let ended = callee.map_or(End::Returns, |to| end_of(to, names, read, 0));
                match ended.told(zero) {
                    End::Well => return End::Well,
                    End::Fails => {}
                    End::Returns => work.push((instruction.next_ip(), told_zero)),
                }
            }
            _ => work.push((instruction.next_ip(), told_zero)),
        }
    }
    End::Fails
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
    // does. ff_ends hands it a 0.
    std::arch::global_asm!(
        ".globl ff_dies, ff_hands_over, ff_calls, ff_returns, ff_ends",
        ".type ff_dies, @function; ff_dies: ud2; .size ff_dies, . - ff_dies",
        ".type ff_hands_over, @function; ff_hands_over: push rbp; call ff_dies; pop rbp; ret",
        ".size ff_hands_over, . - ff_hands_over",
        ".type ff_calls, @function; ff_calls: push rbp; call ff_returns; pop rbp; ret",
        ".size ff_calls, . - ff_calls",
        ".type ff_ends, @function; ff_ends: xor edi, edi; call ff_dies; .size ff_ends, . - ff_ends",
        ".type ff_returns, @function; ff_returns: ret; .size ff_returns, . - ff_returns",
    );
    extern "C" {
        fn ff_hands_over();
        fn ff_calls();
        fn ff_ends();
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
        assert!(!ends(ff_ends), "it is told that all went well");
    }
}
