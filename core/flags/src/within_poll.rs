// SPDX-License-Identifier: MIT
//! Words that a loop tests only within the call by which it polls.
//!
//! In: a window and its analysis. Out: addresses. What a library's function tests on its way to a
//! poll is its own affair, as a rule: a setting, a word to stop by. What the program waits for it
//! asks itself, of what the function returned. Blind spot: a loop that only calls a function, which
//! asks both.

use flagfinder_analysis::Analysis;
use flagfinder_linux::syscalls::{role, Role};
use flagfinder_machine::Window;
use rustc_hash::FxHashSet;

use crate::rank::Ranked;

/// Those words; none where the loop itself polls, or no poll comes back in vain.
pub(crate) fn words(window: &Window, analysis: &Analysis, ranked: &[Ranked]) -> Vec<u64> {
    let spin = &analysis.spin;
    let sites = CallSites::new(window, spin.first_step()..spin.end.min(window.len()));
    let polls = window.syscalls.iter().filter(|call| {
        role(call.number, &call.args) == Role::Poll
            && call.result == Some(0)
            && call.step >= spin.first_step()
    });
    let polling: FxHashSet<u64> = polls
        .filter_map(|call| sites.of(window, call.step))
        .collect();
    // The function's result depends on the word as well, so the place counts where the word is
    // compared.
    let is_within = |word: &&Ranked| {
        let site = sites.of(window, analysis.exits[word.exit].step);
        site.is_some_and(|site| polling.contains(&site))
    };
    let within = ranked.iter().filter(is_within);
    within
        .map(|word| analysis.candidates[word.candidate].address)
        .collect()
}

/// The calls that a loop makes itself.
struct CallSites {
    first: u32,
    /// By step from `first`: the last step in the loop's own function, which is the call.
    calls: Vec<u32>,
}

impl CallSites {
    fn new(window: &Window, steps: std::ops::Range<u32>) -> CallSites {
        let own = steps
            .clone()
            .map(|step| window.rsp(step))
            .max()
            .unwrap_or(0);
        let mut call = steps.start;
        let calls = steps.clone().map(|step| {
            if window.rsp(step) == own {
                call = step;
            }
            call
        });
        CallSites {
            first: steps.start,
            calls: calls.collect(),
        }
    }

    /// The loop's own call that the step is in, as its pc; `None`: the step is the loop's own.
    fn of(&self, window: &Window, step: u32) -> Option<u64> {
        let call = *self.calls.get(step.checked_sub(self.first)? as usize)?;
        (call != step).then(|| window.pc(call))
    }
}

#[cfg(test)]
mod tests {
    use flagfinder_machine::value::Value;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    use super::*;

    #[test]
    fn a_step_belongs_to_the_call_that_the_loop_itself_makes() {
        const NOP: &[u8] = &[0x90];
        const FRAME: u64 = 0x7000;
        let mut window = Window::default();
        let mut factory = InstructionInfoFactory::new();
        let steps = [
            (0x1000, FRAME),
            (0x2000, FRAME - 8),
            (0x3000, FRAME - 80),
            (0x1005, FRAME),
            (0x2000, FRAME - 8),
        ];
        for (pc, rsp) in steps {
            let mut decoder = Decoder::with_ip(64, NOP, pc, DecoderOptions::NONE);
            let index = window.intern(&decoder.decode(), 0, &mut factory);
            window.push(index, Value::of(rsp));
        }
        let sites = CallSites::new(&window, 0..window.len());
        let of: Vec<Option<u64>> = (0..6).map(|step| sites.of(&window, step)).collect();
        let (one, other) = (Some(0x1000), Some(0x1005));
        assert_eq!(of, [None, one, one, None, other, None]);
    }
}
