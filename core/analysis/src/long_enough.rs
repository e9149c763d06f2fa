// SPDX-License-Identifier: MIT
//! Whether a window is long enough to judge by.

use flagfinder_machine::Window;

use crate::dependence::Dependence;
use crate::exit::Source;
use crate::interpreter;
use crate::loop_search;
use crate::slice::Slicer;
use crate::spin_loop::SpinLoop;

/// An interpreter's loop goes round once for each piece of the program that it runs: so many for
/// one iteration of that.
const PIECES: u64 = 10;

/// The loop at a window's end.
pub struct Seen<'w> {
    window: &'w Window,
    spin: SpinLoop,
}

impl Seen<'_> {
    /// Are there so many iterations, and does something but the thread itself decide when the loop
    /// is left? If not, it may be the pause within another loop, of which the window shows too
    /// little.
    pub fn shows(&self, iterations: u64) -> bool {
        // Questions are asked of growing windows: the cheap ones come first.
        let (window, spin) = (self.window, &self.spin);
        spin.iterations >= iterations
            && (spin.iterations >= iterations * PIECES || !interpreter::interprets(window, spin))
            && waits_for_others(window, spin)
    }
}

/// Looks for the loop at the window's end; `None` without one.
pub fn seen(window: &Window) -> Option<Seen<'_>> {
    let spin = loop_search::find(window, &[])?;
    Some(Seen { window, spin })
}

/// Does an exit of the loop depend on something that the thread itself does not change? The
/// elements of a scan that comes to its end do not count: each of them is read once.
pub fn waits_for_others(window: &Window, spin: &SpinLoop) -> bool {
    let dependence = Dependence::new(window);
    // Without names, a jump through a word of its own is one through the linkage table.
    let is_fixed = |step, _| window.code(step).instruction.is_ip_rel_memory_operand();
    let exits = Slicer::new(window, &dependence, spin).exits(true, &is_fixed);
    let ends = exits.iter().any(|exit| exit.induction);
    let is_outside = |source: &Source| match *source {
        Source::Load {
            step,
            access,
            address_only,
        } => !(address_only || ends && is_of_scan(window, spin, step, access.into())),
        Source::Syscall { .. } => true,
    };
    let mut waiting = exits.iter().filter(|exit| !exit.induction);
    waiting.any(|exit| exit.sources.iter().any(is_outside))
}

/// Did the instruction read another address in the iteration before?
fn is_of_scan(window: &Window, spin: &SpinLoop, step: u32, access: usize) -> bool {
    let address = |step: u32| window.accesses(step).get(access)?.address;
    let start = spin.starts.partition_point(|&start| start <= step);
    let before = start
        .checked_sub(2)
        .map(|before| spin.starts[before]..spin.starts[before + 1]);
    let mut before = before.into_iter().flatten();
    let before = before.find(|&other| window.code_index(other) == window.code_index(step));
    before.is_some_and(|before| address(before) != address(step))
}

#[cfg(test)]
mod tests {
    use flagfinder_machine::evaluator::Access;
    use flagfinder_machine::value::Value;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    use super::*;

    #[test]
    fn a_scan_reads_another_word_each_time() {
        let reads = |addresses: [u64; 3]| {
            let mut window = Window::default();
            let mut factory = InstructionInfoFactory::new();
            let mut decoder = Decoder::with_ip(64, &[0x8b, 0x03], 0x1000, DecoderOptions::NONE);
            let load = decoder.decode();
            for address in addresses {
                let index = window.intern(&load, 0, &mut factory);
                window.push(index, Value::of(0x7000));
                window.push_access(Access {
                    address: Some(address),
                    bytes: 4,
                    write: false,
                    value: Value::of(0),
                });
            }
            let spin = SpinLoop {
                marker: 0,
                starts: vec![0, 1, 2, 3],
                iterations: 3,
                end: 3,
            };
            is_of_scan(&window, &spin, 2, 0)
        };
        assert!(reads([0x5000, 0x5008, 0x5010]));
        assert!(!reads([0x5000; 3]));
    }
}
