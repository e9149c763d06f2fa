// SPDX-License-Identifier: MIT
//! Loops that nothing can end, whoever writes what: those without a test, and walks over a list
//! whose links form a circle.

use iced_x86::FlowControl;

use crate::naming::short_name;
use crate::report_builder::Builder;

impl Builder<'_> {
    /// Why nothing can end the loop, whoever writes what.
    pub(crate) fn endless(&self) -> Option<String> {
        // With a good run to compare with, it is told who made the link.
        let circle = match self.outside.normal_searched {
            true => &[][..],
            false => &self.analysis.circle[..],
        };
        if let [first, others @ ..] = circle {
            let link = short_name(&self.naming.spin.data(*first), *first);
            return Some(match others.len() {
                0 => format!("it walks a list, and the link at {link} leads back to its own entry"),
                more => format!(
                    "it walks a list whose links form a circle of {} entries, \
                     one of them at {link}",
                    more + 1
                ),
            });
        }
        let spin = &self.analysis.spin;
        let goes_on = |step: u32| {
            let flow = self.window.code(step).instruction.flow_control();
            let goes_on = matches!(flow, FlowControl::Next | FlowControl::UnconditionalBranch);
            goes_on && self.window.syscall_at(step).is_none()
        };
        // A string instruction that repeats itself ends by its count.
        let counts = |step: u32| {
            let instruction = &self.window.code(step).instruction;
            instruction.has_rep_prefix() || instruction.has_repne_prefix()
        };
        let mut steps = spin.first_step()..spin.end;
        let is_endless = steps.clone().all(goes_on) && !steps.all(counts);
        is_endless.then(|| {
            "it has no branch. A word that it was to test was read once, before the loop: \
             compilers do so where it is neither atomic nor volatile"
                .into()
        })
    }
}

#[cfg(test)]
mod tests {
    use flagfinder_code::{Names, NamesInput};
    use flagfinder_machine::value::Value;
    use flagfinder_machine::Window;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    use crate::report::ThreadName;

    /// Is the instruction, made again and again, told to be a loop without an end?
    fn is_endless(bytes: &[u8]) -> bool {
        let (mut window, mut factory) = (Window::default(), InstructionInfoFactory::new());
        for _ in 0..50 {
            let mut decoder = Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE);
            let index = window.intern(&decoder.decode(), 0, &mut factory);
            window.push(index, Value::of(0x7000));
        }
        let names = Names::new(NamesInput::from_code_maps("", 0));
        let thread = ThreadName {
            tid: 1,
            name: String::new(),
        };
        let report = crate::find_in_window(&window, &names, thread);
        report.facts.endless.is_some()
    }

    #[test]
    fn a_copy_of_much_memory_comes_to_its_end() {
        let (jump_to_itself, copies) = ([0xeb, 0xfe], [0xf3, 0xa4]);
        assert!(is_endless(&jump_to_itself));
        assert!(!is_endless(&copies));
    }
}
