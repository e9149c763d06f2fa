// SPDX-License-Identifier: MIT
//! `find SPIN.trace [NORMAL.trace ..]`: prints the report as JSON. `FF_LONE=1` leaves the
//! diff out.

use std::path::Path;

use flagfinder_diff::diff;
use flagfinder_flags::{find_flags, Options};
use flagfinder_trace::Trace;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    let (spin, normals) = paths.split_first().ok_or("missing SPIN.trace")?;
    let spin = Trace::open(Path::new(spin))?;
    let normals = normals
        .iter()
        .map(|path| Trace::open(Path::new(path)))
        .collect::<Result<Vec<_>, _>>()?;
    let refs: Vec<&Trace> = normals.iter().collect();
    let begin = std::time::Instant::now();
    let divergence = if refs.is_empty() || std::env::var_os("FF_LONE").is_some() {
        None
    } else {
        Some(diff(
            &refs,
            &spin,
            &flagfinder_diff::Options::default(),
            &|_| {},
        )?)
    };
    let aligned = begin.elapsed();
    let report = find_flags(&spin, &normals, divergence.as_ref(), &Options::default())?;
    eprintln!("diff {aligned:?}, flags {:?}", begin.elapsed() - aligned);
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(())
}
