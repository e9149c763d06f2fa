// SPDX-License-Identifier: MIT
//! Exits that are one condition of the source: `while (up && !ready)`.
//!
//! Each test of it is a branch of its own, and the loop goes on only when all of them
//! went as they did: any of their words may end it.

use flagfinder_machine::Window;
use iced_x86::FlowControl;

use crate::exit::Exit;

/// Most instructions between two tests of one condition whose ways out differ.
const NEAR: u32 = 16;

/// For each exit the number of its condition; exits of the same one have the same.
pub fn conditions(window: &Window, exits: &[Exit]) -> Vec<usize> {
    let mut condition: Vec<usize> = (0..exits.len()).collect();
    let mut order = condition.clone();
    order.sort_by_key(|&exit| (window.rsp(exits[exit].step), exits[exit].step));
    let mut join = |a: usize, b: usize| {
        let (from, to) = (condition[b], condition[a]);
        for number in condition.iter_mut().filter(|number| **number == from) {
            *number = to;
        }
    };
    for pair in order.windows(2) {
        let (a, b) = (&exits[pair[0]], &exits[pair[1]]);
        if window.rsp(a.step) == window.rsp(b.step) && follows_at_once(window, a.step, b.step) {
            join(pair[0], pair[1]);
        }
    }
    order.sort_by_key(|&exit| (window.rsp(exits[exit].step), exits[exit].other));
    for pair in order.windows(2) {
        let (a, b) = (&exits[pair[0]], &exits[pair[1]]);
        if window.rsp(a.step) == window.rsp(b.step) && a.other.is_some() && a.other == b.other {
            join(pair[0], pair[1]);
        }
    }
    condition
}

/// Nothing but the second test lies between the two branches.
fn follows_at_once(window: &Window, first: u32, second: u32) -> bool {
    second - first <= NEAR
        && (first + 1..second).all(|step| {
            let flow = window.code(step).instruction.flow_control();
            let straight = matches!(flow, FlowControl::Next | FlowControl::UnconditionalBranch);
            straight
                && window.syscall_at(step).is_none()
                && window.accesses(step).iter().all(|access| !access.write)
        })
}

#[cfg(test)]
mod tests {
    use flagfinder_machine::value::Value;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    use super::*;
    use crate::exit::Transfer;

    const FRAME: u64 = 0x7000;
    const TEST_JUMP: [u8; 4] = [0x85, 0xc0, 0x74, 0x10];
    const CALL: [u8; 5] = [0xe8, 0, 0, 0, 0];

    /// A straight run through the code, with the stack pointer as it was at each step.
    fn window(code: &[u8], rsp: impl Fn(u32) -> u64) -> Window {
        let mut window = Window::default();
        let mut factory = InstructionInfoFactory::new();
        for instruction in &mut Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE) {
            let index = window.intern(&instruction, 0, &mut factory);
            let step = window.len();
            window.push(index, Value::of(rsp(step)));
        }
        window
    }

    fn exit(step: u32, other: u64) -> Exit {
        Exit {
            step,
            transfer: Transfer::Branch,
            taken: false,
            other: Some(other),
            sources: Vec::new(),
            words: 0,
            induction: false,
            ends_scan: false,
        }
    }

    fn is_one(window: &Window, exits: &[Exit; 2]) -> bool {
        let found = conditions(window, exits);
        found[0] == found[1]
    }

    #[test]
    fn tests_that_follow_each_other_are_one_condition() {
        let window = window(&[TEST_JUMP, TEST_JUMP].concat(), |_| FRAME);
        assert!(is_one(&window, &[exit(1, 0x2000), exit(3, 0x2000)]));
        assert!(is_one(&window, &[exit(1, 0x2000), exit(3, 0x3000)]));
    }

    #[test]
    fn exits_around_a_call_are_one_condition_if_they_leave_to_one_place() {
        let code = [&TEST_JUMP[..], &CALL, &TEST_JUMP].concat();
        let window = window(&code, |_| FRAME);
        assert!(is_one(&window, &[exit(1, 0x2000), exit(4, 0x2000)]));
        assert!(!is_one(&window, &[exit(1, 0x2000), exit(4, 0x3000)]));
    }

    #[test]
    fn frames_are_kept_apart() {
        let code = [TEST_JUMP, TEST_JUMP].concat();
        let window = window(&code, |step| FRAME - u64::from(step / 2) * 64);
        assert!(!is_one(&window, &[exit(1, 0x2000), exit(3, 0x2000)]));
    }
}
