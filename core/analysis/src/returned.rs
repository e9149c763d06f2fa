// SPDX-License-Identifier: MIT
//! Whether a way that was not taken returns what the function returns anyway.

use flagfinder_machine::Window;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic, OpKind, Register};

use crate::effects::RAX;
use crate::exit::Exit;
use crate::read_code::ReadCode;

/// Most instructions on the way to a return.
const SHORT_WAY: usize = 32;

/// The other way leads straight to a return, with the value that is returned anyway, or with
/// another error: the caller repeats for one error as for the other.
pub fn returns_the_same(window: &Window, exit: &Exit, other: u64, read: &ReadCode) -> bool {
    const LOW: u64 = 0xff;
    const INT: u64 = 0xffff_ffff;
    let otherwise = returned(other, result_before(window, exit.step), read);
    let (Some((_, now)), Some(otherwise)) = (answer(exit, window), otherwise) else {
        return false;
    };
    now & LOW == otherwise & LOW || is_error(now & INT) && is_error(otherwise & INT)
}

/// Where the function with the exit returned, and which value.
pub fn answer(exit: &Exit, window: &Window) -> Option<(u32, u64)> {
    let rsp = window.rsp(exit.step);
    let is_return = |&step: &u32| {
        let ends = window.code(step).instruction.flow_control() == FlowControl::Return;
        ends && window.rsp(step) >= rsp
    };
    let ending = (exit.step..window.len()).find(is_return)?;
    Some((ending, result_before(window, ending)?))
}

/// What `rax` holds before the step.
pub fn result_before(window: &Window, end: u32) -> Option<u64> {
    let mut before = (0..end).rev();
    let step = before.find(|&step| window.results(step).iter().any(|(r, _)| *r == RAX))?;
    let result = window.result(step, RAX);
    result.get(64).or(result.get(32)).or(result.get(8))
}

/// What the way from `pc` straight to a return returns, where `rax` is known to begin with.
pub fn returned(mut pc: u64, rax: Option<u64>, read: &ReadCode) -> Option<u64> {
    let mut value = rax;
    for _ in 0..SHORT_WAY {
        let mut bytes = [0u8; 15];
        let got = read(pc, &mut bytes);
        let code = Decoder::with_ip(64, &bytes[..got], pc, DecoderOptions::NONE).decode();
        pc = code.next_ip();
        match code.flow_control() {
            FlowControl::Return => return value,
            FlowControl::UnconditionalBranch => pc = code.near_branch_target(),
            FlowControl::Next => {}
            _ => return None,
        }
        let target = code.op0_register().full_register();
        if code.op_count() == 0 || target != Register::RAX {
            continue;
        }
        value = match code.mnemonic() {
            Mnemonic::Xor if code.op0_register() == code.op1_register() => Some(0),
            Mnemonic::Mov | Mnemonic::Or => match code.op1_kind() {
                OpKind::Immediate32 => Some(u64::from(code.immediate32())),
                OpKind::Immediate32to64 => Some(code.immediate32to64() as u64),
                OpKind::Immediate8to32 => Some(code.immediate8to32() as u32 as u64),
                OpKind::Immediate8to64 => Some(code.immediate8to64() as u64),
                OpKind::Immediate8 => Some(u64::from(code.immediate8())),
                _ => None,
            }
            .filter(|&value| code.mnemonic() == Mnemonic::Mov || is_error(value)),
            Mnemonic::Cmp | Mnemonic::Test => value,
            _ => None,
        };
    }
    None
}

/// -1 to -4095, in 32 bits or in 64.
pub fn is_error(value: u64) -> bool {
    const MOST: i32 = 4095;
    let small = value as u32 as i32;
    (-MOST..0).contains(&small) && (value >> 32 == 0 || value >> 32 == u64::from(u32::MAX))
}
