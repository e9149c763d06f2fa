// SPDX-License-Identifier: MIT
//! `trace_names FILE [ADDRESS..]`: checks a trace's flow against its code, times the
//! decoding, and says what addresses of its first process are called.

use std::time::Instant;

use flagfinder_code::{AllocationLog, CodeMap, Names, NamesInput};
use flagfinder_trace::Trace;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments
        .next()
        .ok_or("usage: trace_names FILE [ADDRESS..]")?;
    let trace = Trace::open(path.as_ref())?;
    for process in trace.processes() {
        let started = Instant::now();
        let code = CodeMap::new(process);
        let blocks = process.blocks();
        let instructions: usize = blocks
            .iter()
            .map(|b| code.decode(b).instructions.len())
            .sum();
        let differing = blocks
            .iter()
            .filter(|b| code.decode(b).instructions.len() != usize::from(b.instruction_count))
            .count();
        println!(
            "{} {}: {} blocks, {instructions} instructions in {:?}; {differing} decode differently",
            process.pid,
            process.path,
            blocks.len(),
            started.elapsed()
        );
        for thread in process.threads() {
            let started = Instant::now();
            let breaks = code.flow_breaks(thread, 5);
            println!(
                "  thread {} {}: {} breaks in {:?}",
                thread.tid,
                thread.name,
                breaks.len(),
                started.elapsed()
            );
            for found in breaks {
                let place = |id| process.block(id).map(|b| code.place_of(b).to_string());
                println!(
                    "    {:?} -> {:?} at {}",
                    place(found.from),
                    place(found.to),
                    found.pos
                );
            }
        }
    }
    let process = trace.processes().first().ok_or("no process")?;
    let started = Instant::now();
    let log = AllocationLog::from_process(process)?;
    let names = Names::new(NamesInput::from_process(process, log));
    println!("allocations read in {:?}", started.elapsed());
    let ends = process.threads().iter().filter_map(|thread| {
        let last = thread.flow_tail(4096).filter_map(Result::ok);
        let ids = last.filter_map(|item| match item {
            flagfinder_trace::Flow::Block { id, .. } => Some(id),
            _ => None,
        });
        process.block(ids.last()?)
    });
    for block in ends {
        println!("last block: {}", names.code(block.pc));
    }
    for text in arguments {
        let address = u64::from_str_radix(text.trim_start_matches("0x"), 16)?;
        let data = names.data(address);
        println!("{address:#x} {:?}: {}", data.kind, data.name);
        println!("  {}", names.code(address));
    }
    for note in names.notes() {
        eprintln!("note: {note}");
    }
    Ok(())
}
