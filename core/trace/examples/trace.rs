// SPDX-License-Identifier: MIT
//! Looks at a trace from the command line, for work on the engine itself:
//! `trace info|check FILE`, `trace dump FILE flow|events|values|blocks|modules
//! [TID] [FROM] [LIMIT]`. The product's command is `flagfinder trace`.

use std::path::Path;
use std::process::exit;

use flagfinder_trace::{check, dump, DumpKind, DumpOptions, Failure, Trace};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["info", file] => info(file),
        ["check", file] => run_check(file),
        ["dump", file, kind, rest @ ..] => run_dump(file, kind, rest),
        _ => {
            eprintln!("see the head of examples/trace.rs");
            exit(2)
        }
    };
    match result {
        Ok(code) => exit(code),
        Err(error) => {
            eprintln!("{error}");
            exit(error.exit_code)
        }
    }
}

fn info(file: &str) -> Result<i32, Failure> {
    let trace = Trace::open(Path::new(file))?;
    println!(
        "{:?}\n{:?}\nnotes {:?}",
        trace.info().command,
        trace.end(),
        trace.notes()
    );
    println!(
        "{} sections, {} bytes, damage {:?}, faults {:?}",
        trace.section_count(),
        trace.file_bytes(),
        trace.damage(),
        trace.faults()
    );
    for process in trace.processes() {
        let (modules, blocks, maps) = (
            process.modules().len(),
            process.blocks().len(),
            process.maps().len(),
        );
        println!(
            "process {} {} modules {modules} blocks {blocks} maps {maps}",
            process.pid, process.path
        );
        for thread in process.threads() {
            let spans = thread.value_spans();
            let values: u64 = spans.iter().map(|span| span.bytes).sum();
            println!(
                "  thread {} {:?} creator {:?} open {} flow {} bytes, values {values} bytes in {} spans",
                thread.tid, thread.name, thread.creator_tid(), thread.ended_open(), thread.flow_bytes(), spans.len()
            );
        }
    }
    Ok(0)
}

fn run_check(file: &str) -> Result<i32, Failure> {
    let violations = check(&Trace::open(Path::new(file))?)?;
    for v in &violations {
        println!(
            "{:?} pid {} tid {} at {:?}, {} times: {}",
            v.rule, v.pid, v.tid, v.pos, v.count, v.text
        );
    }
    Ok(i32::from(!violations.is_empty()))
}

fn run_dump(file: &str, kind: &str, rest: &[&str]) -> Result<i32, Failure> {
    let kind = match kind {
        "flow" => DumpKind::Flow,
        "events" => DumpKind::Events,
        "values" => DumpKind::Values,
        "blocks" => DumpKind::Blocks,
        _ => DumpKind::Modules,
    };
    let number = |index: usize| rest.get(index).and_then(|text| text.parse::<u64>().ok());
    let options = DumpOptions {
        kind,
        pid: None,
        tid: number(0).filter(|&tid| tid != 0).map(|tid| tid as u32),
        from: number(1).unwrap_or(0),
        limit: number(2).unwrap_or(100) as usize,
    };
    let trace = Trace::open(Path::new(file))?;
    // A closed pipe is the reader's choice.
    Ok(i32::from(
        dump(&trace, &options, &mut std::io::stdout().lock()).is_err(),
    ))
}
