// SPDX-License-Identifier: MIT
//! Loops that nothing can end, whoever writes what: those without a test, and walks over a list
//! whose links form a circle.

use iced_x86::FlowControl;

use crate::naming::short_name;
use crate::report_builder::Builder;

/// Begins the reason why a loop has no flag, where nothing that others write can end it.
pub const ENDLESS: &str = "nothing ends the loop: ";

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
        (spin.first_step()..spin.end).all(goes_on).then(|| {
            "it has no branch. A word that it was to test was read once, before the loop: \
             compilers do so where it is neither atomic nor volatile"
                .into()
        })
    }
}
