// SPDX-License-Identifier: MIT
//! What `flagfinder trace check` finds: the invariants of the file, and of the code that ran.

use std::sync::Arc;

use flagfinder_code::CodeMap;
use flagfinder_trace::{check, Result, Trace, Violation};

/// Broken successions told for each thread.
const MOST_BREAKS: usize = 8;

/// One line for each violation.
pub fn violations(trace: &Arc<Trace>) -> Result<Vec<String>> {
    let mut lines: Vec<_> = check(trace)?.iter().map(line).collect();
    for process in trace.processes() {
        let map = CodeMap::new(process);
        for thread in process.threads() {
            let image = image(process.image);
            let place = format!("pid {}{image} tid {}", process.pid, thread.tid);
            for found in map.flow_breaks(thread, MOST_BREAKS) {
                lines.push(format!(
                    "Succession: {place} at {:#x}: block {} can't follow block {}",
                    found.pos, found.to, found.from
                ));
            }
        }
    }
    Ok(lines)
}

fn line(violation: &Violation) -> String {
    let mut line = format!("{:?}: ", violation.rule);
    if violation.pid != 0 {
        line += &format!("pid {}{} ", violation.pid, image(violation.image));
    }
    if violation.tid != 0 {
        line += &format!("tid {} ", violation.tid);
    }
    if let Some(pos) = violation.pos {
        line += &format!("at {pos:#x}: ");
    }
    line += &violation.text;
    if violation.count > 1 {
        line += &format!(" ({} times)", violation.count);
    }
    line
}

/// Named only where a process has called exec.
fn image(number: u32) -> String {
    match number {
        0 | 1 => String::new(),
        number => format!(" image {number}"),
    }
}
