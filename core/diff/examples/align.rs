// SPDX-License-Identifier: MIT
//! Aligns trace files and prints the divergence as JSON: `align NORMAL.. SPIN`.

use flagfinder_diff::{diff, Options};
use flagfinder_trace::Trace;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    if paths.len() < 2 {
        eprintln!("usage: align NORMAL.trace.. SPIN.trace");
        return ExitCode::from(2);
    }
    let traces: Result<Vec<Trace>, _> = paths
        .iter()
        .map(|path| Trace::open(Path::new(path)))
        .collect();
    let traces = match traces {
        Ok(traces) => traces,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(65);
        }
    };
    let Some((spin, normals)) = traces.split_last() else {
        return ExitCode::from(2);
    };
    let normals: Vec<&Trace> = normals.iter().collect();
    let began = std::time::Instant::now();
    match diff(&normals, spin, &Options::default(), &|_| {}) {
        Ok(divergence) => {
            eprintln!("{:.2} s", began.elapsed().as_secs_f64());
            match serde_json::to_string_pretty(&divergence) {
                Ok(text) => println!("{text}"),
                Err(error) => eprintln!("{error}"),
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(65)
        }
    }
}
