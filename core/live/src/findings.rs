// SPDX-License-Identifier: MIT
//! What was seen of the threads that were looked at: in their copies, or in place.

use crate::chosen_threads::Choice;
use crate::helpers::{Copies, Helpers};
use crate::report::Via;
use crate::stepping_job::Finding;

/// Waits for the helpers. `uncopied` is why a thread was seen in place that had no copy.
pub(crate) fn findings(
    choice: &Choice,
    copies: &Copies,
    helpers: Helpers,
    uncopied: &str,
) -> Vec<(u32, Finding)> {
    let fit = copies.fit.iter();
    let mut findings: Vec<(u32, Finding)> = fit
        .filter(|(tid, _)| choice.get(*tid).is_some())
        .cloned()
        .collect();
    for (tid, mut finding) in helpers.results() {
        if choice.get(tid).is_none() {
            continue;
        }
        let unfit = copies.unfit.get(&tid);
        let (held, why) = unfit.map_or((0.0, uncopied), |(held, why)| (*held, why.as_str()));
        finding.via = Via::InPlace;
        finding.via_reason = why.to_owned();
        finding.pause_ms = ((held + finding.pause_ms) * 100.0).round() / 100.0;
        findings.push((tid, finding));
    }
    findings
}

/// The first thread that could not be stepped, as the system does not permit it.
pub(crate) fn denied(findings: &[(u32, Finding)]) -> Option<u32> {
    let denied = findings.iter().find(|(_, finding)| finding.denied);
    denied.map(|(tid, _)| *tid)
}
