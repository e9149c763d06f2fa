// SPDX-License-Identifier: MIT
//! Records from the command line, for work on the engine itself:
//! `record -o FILE --tracer-dir DIR [--level flow|values] [--last BYTES] [--last-flow]
//! [--values-in FILE] [--stop-when-spinning S] [--stop-after S] [--then kill|leave]
//! [--follow-children] -- PROGRAM ARGS`. The product's command is `flagfinder record`.

use std::ops::ControlFlow;
use std::process::exit;
use std::time::Duration;

use flagfinder_record::{
    record, Last, RecordOptions, TargetExit, Then, TracerCommand, POOL_PLACEHOLDER,
};
use flagfinder_trace::Level;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (mut output, mut directory) = (String::from("x.trace"), String::from("."));
    let mut values_in: Option<String> = None;
    let empty = TracerCommand { argv: Vec::new() };
    let mut options = RecordOptions::new("", empty, Level::Values);
    let (mut last, mut last_flow) = (None, false);
    while let Some(argument) = arguments.next() {
        let mut value = || {
            arguments
                .next()
                .unwrap_or_else(|| usage(&format!("{argument} needs a value")))
        };
        let seconds = |text: String| {
            Duration::from_secs_f64(
                text.parse()
                    .unwrap_or_else(|_| usage(&format!("{text} is no number of seconds"))),
            )
        };
        match argument.as_str() {
            "-o" => output = value(),
            "--tracer-dir" => directory = value(),
            "--level" => {
                options.level = if value() == "flow" {
                    Level::Flow
                } else {
                    Level::Values
                }
            }
            "--values-in" => values_in = Some(value()),
            "--last" => last = value().parse().ok(),
            "--last-flow" => last_flow = true,
            "--stop-when-spinning" => options.stop_when_spinning = Some(seconds(value())),
            "--stop-after" => options.stop_after = Some(seconds(value())),
            "--then" => {
                options.then = if value() == "kill" {
                    Then::Kill
                } else {
                    Then::Leave
                }
            }
            "--follow-children" => options.follow_children = true,
            "--" => break,
            other => usage(&format!("{other} is unknown")),
        }
    }
    options.command = arguments.collect();
    if options.command.is_empty() {
        usage("no program");
    }
    options.output = output.into();
    options.last = last.map(|bytes| Last {
        bytes,
        flow: last_flow,
    });
    let level = if options.level == Level::Flow {
        "flow"
    } else {
        "values"
    };
    let launcher = format!("{directory}/ff_launch");
    let mut argv = vec![
        launcher,
        "--pool".into(),
        POOL_PLACEHOLDER.into(),
        "--level".into(),
        level.into(),
    ];
    argv.extend(["--dr".into(), directory]);
    if let Some(file) = values_in {
        argv.extend(["--values-in".into(), file]);
    }
    if options.follow_children {
        argv.push("--follow-children".into());
    }
    argv.push("--".into());
    argv.extend(options.command.iter().cloned());
    options.tracer.argv = argv.into_iter().map(Into::into).collect();
    match record(&options, &mut |_| ControlFlow::Continue(())) {
        Err(error) => {
            eprintln!("{error}");
            exit(error.exit_code);
        }
        Ok(outcome) => {
            for note in &outcome.notes {
                eprintln!("record: {:?}: {}", note.level, note.text);
            }
            eprintln!(
                "record: {:?}, {:?}, {:?}",
                outcome.target, outcome.end.reason, outcome.progress
            );
            exit(match outcome.target {
                TargetExit::Exited(status) => status,
                TargetExit::Signaled(signal) => 128 + signal,
                TargetExit::Running => 0,
            });
        }
    }
}

fn usage(problem: &str) -> ! {
    eprintln!("{problem}; see the head of examples/record.rs");
    exit(2)
}
