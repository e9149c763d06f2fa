// SPDX-License-Identifier: MIT
//! Calls whose results the loop does not use: `sched_yield()`, a pause, a log.
//!
//! What is tested within one decides how it gives way or logs, not whether the loop goes on:
//! without a result that is read, the call returns to the same place whatever it found. Blind
//! spots: a function that never returns or throws when its word is set, and one that leaves its
//! answer in memory (then a test outside depends on the word as well).

use flagfinder_machine::Window;
use iced_x86::FlowControl;

use crate::effects::RAX;
use crate::exit::Exit;
use crate::generated_code::Generated;
use crate::spin_loop::SpinLoop;

/// Instructions within which a result is read, if it ever is.
const SOON: u32 = 64;

/// Does the exit lie within such a call? Not if that is a callback: its caller knows nothing of
/// what it is for.
pub fn is_within(window: &Window, spin: &SpinLoop, generated: &Generated, exit: &Exit) -> bool {
    let (own, frame) = (window.rsp(exit.step), window.rsp(spin.first_step()));
    if own == 0 || own >= frame {
        return false;
    }
    let flow = |step: u32| window.code(step).instruction.flow_control();
    let end = spin.end.saturating_sub(1);
    let comes_back =
        |&step: &u32| flow(step) == FlowControl::Return && window.rsp(step) + 8 >= frame;
    let Some(ending) = (exit.step..end).find(comes_back) else {
        return false;
    };
    // Into the loop's own frame, not beyond.
    if window.rsp(ending) + 8 > frame || is_read(window, ending + 1, spin.end) {
        return false;
    }
    let behind = window.pc(ending + 1);
    let calls = |&step: &u32| {
        let call = matches!(flow(step), FlowControl::Call | FlowControl::IndirectCall);
        call && window.code(step).instruction.next_ip() == behind
    };
    let call = (spin.first_step()..exit.step).rev().find(calls);
    call.is_some_and(|call| flow(call) == FlowControl::Call || generated.is_at(window, call))
}

/// Is the result read before another value takes its place?
fn is_read(window: &Window, from: u32, end: u32) -> bool {
    let register = flagfinder_machine::decoded::general(RAX);
    for step in from..end.min(from + SOON) {
        let code = window.code(step);
        if code.reads & register != 0 {
            return true;
        }
        let calls = matches!(
            code.instruction.flow_control(),
            FlowControl::Call | FlowControl::IndirectCall
        );
        if calls || code.writes & register != 0 {
            return false;
        }
    }
    // Not seen to be without use.
    true
}

#[cfg(test)]
mod tests {
    use flagfinder_code::{Names, NamesInput};
    use flagfinder_machine::value::Value;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    use super::*;

    const FRAME: u64 = 0x7000;
    const FUNCTION: u64 = 0x2000;
    /// call FUNCTION, from 0x1000
    const CALL: &[u8] = &[0xe8, 0xfb, 0x0f, 0, 0];
    /// jne +0x20
    const TEST: &[u8] = &[0x75, 0x20];
    const RET: &[u8] = &[0xc3];
    /// test eax, eax
    const USES: &[u8] = &[0x85, 0xc0];
    /// xor eax, eax, which depends on nothing
    const FORGETS: &[u8] = &[0x31, 0xc0];

    /// Is a test part of a function whose call brings nothing, when the loop does this behind the
    /// call?
    fn is_idle(behind: &[u8]) -> bool {
        let mut window = Window::default();
        let mut factory = InstructionInfoFactory::new();
        let mut starts = Vec::new();
        let below = FRAME - 8;
        for _ in 0..4 {
            starts.push(window.len());
            for (pc, code, rsp) in [
                (0x1000, CALL, FRAME),
                (FUNCTION, TEST, below),
                (FUNCTION + 2, RET, below),
                (0x1005, behind, FRAME),
                (0x1007, TEST, FRAME),
            ] {
                let mut decoder = Decoder::with_ip(64, code, pc, DecoderOptions::NONE);
                let index = window.intern(&decoder.decode(), 0, &mut factory);
                window.push(index, Value::of(rsp));
            }
        }
        let spin = SpinLoop {
            marker: 0,
            iterations: 3,
            end: window.len(),
            starts,
        };
        let names = Names::new(NamesInput::default());
        let generated = Generated::of(&window, &spin, &names);
        let exit = |step| Exit {
            step,
            taken: false,
            transfer: crate::exit::Transfer::Branch,
            other: Some(0x3000),
            sources: Vec::new(),
            words: 0,
            induction: false,
            ends_scan: false,
        };
        assert!(
            !is_within(&window, &spin, &generated, &exit(9)),
            "the loop's own test"
        );
        is_within(&window, &spin, &generated, &exit(6))
    }

    #[test]
    fn a_call_whose_result_nobody_reads() {
        assert!(is_idle(FORGETS));
        assert!(!is_idle(USES));
    }
}
