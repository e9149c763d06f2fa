// SPDX-License-Identifier: MIT
//! `spin PID TID [STEPS]`: steps the thread and prints the report on it as JSON.

use flagfinder_analysis::seen;
use flagfinder_code::{Names, NamesInput};
use flagfinder_flags::{find_in_window, ThreadName};
use flagfinder_step::{step_thread, Limits};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut numbers = std::env::args().skip(1).map(|a| a.parse::<u32>());
    let mut next = |what: &str| numbers.next().ok_or(format!("missing {what}"));
    let (pid, tid) = (next("PID")??, next("TID")??);
    let steps = next("STEPS").map_or(Ok(100_000), |n| n)?;
    let limits = Limits {
        steps,
        ..Limits::default()
    };
    let stepped = step_thread(tid, &limits, |window| {
        seen(window).is_some_and(|seen| seen.iterations >= 40)
    })?;
    let window = stepped.window;
    let names = Names::new(NamesInput::from_live(pid)?);
    let name = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm"))?;
    let thread = ThreadName {
        tid,
        name: name.trim_end().into(),
    };
    eprintln!(
        "{} steps in {} ms",
        window.len(),
        window.duration / 1_000_000
    );
    let report = find_in_window(&window, &names, thread);
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(())
}
