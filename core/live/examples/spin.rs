// SPDX-License-Identifier: MIT
//! The report of a live process, as JSON: `spin PID`.

use flagfinder_live::{spin, SpinOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pid = std::env::args().nth(1).ok_or("spin PID")?.parse()?;
    let report = spin(pid, &SpinOptions::default(), |_| {})?;
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(())
}
