// SPDX-License-Identifier: MIT
//! A trace as text, for people: one line per item.

use std::fmt::Write as _;
use std::io::{self, Write};

use crate::block::Block;
use crate::error::Failure;
use crate::event::Event;
use crate::flow::Flow;
use crate::process::Process;
use crate::replay::ReplayItem;
use crate::thread::Thread;
use crate::trace::Trace;

/// What of a trace to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpKind {
    /// Blocks and events in order.
    Flow,
    /// Events in order, without blocks.
    Events,
    /// Blocks with the values of their slots.
    Values,
    /// The table of each process's blocks: code and slots.
    Blocks,
    /// The table of each process's modules.
    Modules,
}

/// Which part of a trace to print.
#[derive(Clone, Copy, Debug)]
pub struct DumpOptions {
    /// What to print.
    pub kind: DumpKind,
    /// Only this process / thread.
    pub pid: Option<u32>,
    /// `None`: all threads. Tables do not heed it.
    pub tid: Option<u32>,
    /// From this flow position on.
    pub from: u64,
    /// At most so many lines per thread (per process for tables).
    pub limit: usize,
}

/// Writes the selected part. Errors: those of `out`, and reading the trace.
pub fn dump(trace: &Trace, options: &DumpOptions, out: &mut dyn Write) -> io::Result<()> {
    for process in trace
        .processes()
        .iter()
        .filter(|p| options.pid.is_none_or(|pid| pid == p.pid))
    {
        match options.kind {
            DumpKind::Blocks => {
                writeln!(out, "{}", heading(process))?;
                for block in process.blocks().iter().take(options.limit) {
                    writeln!(out, "{}", block_line(process, block))?;
                }
            }
            DumpKind::Modules => dump_modules(process, options.limit, out)?,
            _ => {
                for thread in process
                    .threads()
                    .iter()
                    .filter(|t| options.tid.is_none_or(|tid| tid == t.tid))
                {
                    writeln!(
                        out,
                        "thread {} of {}{} \"{}\"",
                        thread.tid,
                        process.pid,
                        image(process),
                        in_a_line(&thread.name)
                    )?;
                    match options.kind {
                        DumpKind::Values => dump_values(process, thread, options, out)?,
                        _ => dump_flow(process, thread, options, out)?,
                    }
                }
            }
        }
    }
    Ok(())
}

fn heading(process: &Process) -> String {
    let path = in_a_line(&process.path);
    format!("process {}{} {path}", process.pid, image(process))
}

/// A name as it can stand in a line: programs choose names, also such with line breaks.
fn in_a_line(name: &str) -> String {
    let escaped = |c: char| match c.is_control() {
        true => format!("\\u{:04x}", u32::from(c)),
        false => c.to_string(),
    };
    name.chars().map(escaped).collect()
}

/// Named only where the process has called exec.
fn image(process: &Process) -> String {
    match process.image {
        1 => String::new(),
        number => format!(" image {number}"),
    }
}

fn dump_modules(process: &Process, limit: usize, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", heading(process))?;
    for module in process.modules().iter().take(limit) {
        let id: String = module
            .build_id
            .iter()
            .fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            });
        let unloaded = if module.unload_ts.is_some() {
            " unloaded"
        } else {
            ""
        };
        writeln!(
            out,
            "module {} {:#x}-{:#x} base {:#x} build-id {id} {}{unloaded}",
            module.id,
            module.start,
            module.end,
            module.base,
            in_a_line(&module.path)
        )?;
    }
    Ok(())
}

fn dump_flow(
    process: &Process,
    thread: &Thread,
    options: &DumpOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut lines = 0;
    for item in thread.flow_from(options.from) {
        let item = item.map_err(failed)?;
        if item.pos() < options.from {
            continue;
        }
        match item {
            Flow::Block { .. } if options.kind == DumpKind::Events => continue,
            Flow::Block { id, pos } => writeln!(out, "{pos:>12} {}", place(process, id))?,
            Flow::Event { event, pos } => writeln!(out, "{pos:>12} {}", event_text(&event))?,
            Flow::Gap { reason, pos } => writeln!(out, "{pos:>12} gap: {reason:?}")?,
        }
        lines += 1;
        if lines >= options.limit {
            return writeln!(out, "..");
        }
    }
    Ok(())
}

fn dump_values(
    process: &Process,
    thread: &Thread,
    options: &DumpOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut lines = 0;
    let spans = thread.value_spans();
    // The span that holds `from`, then the later ones.
    let first = spans
        .partition_point(|span| span.start_pos <= options.from)
        .saturating_sub(1);
    for span in &spans[first.min(spans.len())..] {
        writeln!(
            out,
            "values from {} on: {} sections, {} bytes",
            span.start_pos, span.sections, span.bytes
        )?;
        let mut replay = thread.replay(span);
        while let Some(item) = replay.next() {
            match item.map_err(failed)? {
                ReplayItem::Block(block) if block.pos >= options.from => {
                    if let Some(registers) = block.checkpoint {
                        writeln!(
                            out,
                            "{:>12} checkpoint {:x?} valid {:#x}",
                            block.pos, registers.values, registers.valid
                        )?;
                    }
                    let values = slots_text(block.block, block.values);
                    let partial = if block.partial { " partial" } else { "" };
                    writeln!(
                        out,
                        "{:>12} {}{values}{partial}",
                        block.pos,
                        place(process, block.id)
                    )?;
                }
                ReplayItem::Event { event, pos } if pos >= options.from => {
                    writeln!(out, "{pos:>12} {}", event_text(&event))?;
                }
                ReplayItem::Gap { reason, pos } => writeln!(out, "{pos:>12} gap: {reason:?}")?,
                _ => continue,
            }
            lines += 1;
            if lines >= options.limit {
                return writeln!(out, "..");
            }
        }
    }
    Ok(())
}

fn failed(error: Failure) -> io::Error {
    io::Error::other(error)
}

fn place(process: &Process, id: u32) -> String {
    let Some(block) = process.block(id) else {
        return format!("block {id} (no record)");
    };
    let module = block.module.and_then(|module| process.module(module));
    match module {
        Some(module) => {
            let name = module.path.rsplit('/').next().unwrap_or_default();
            format!(
                "block {id} {}+{:#x}",
                in_a_line(name),
                block.pc.wrapping_sub(module.base)
            )
        }
        None => format!("block {id} {:#x}", block.pc),
    }
}

fn block_line(process: &Process, block: &Block) -> String {
    let mut text = format!(
        "{} {} instructions,",
        place(process, block.id),
        block.instruction_count
    );
    for byte in &block.code {
        let _ = write!(text, " {byte:02x}");
    }
    for slot in &block.slots {
        let _ = write!(
            text,
            " [{} {:?} {} {}]",
            slot.instruction, slot.kind, slot.size, slot.detail
        );
    }
    text
}

fn slots_text(block: Option<&Block>, values: Option<&[u8]>) -> String {
    let (Some(block), Some(mut values)) = (block, values) else {
        return " (no values)".into();
    };
    let mut text = String::new();
    for slot in &block.slots {
        let (bytes, rest) = values.split_at(usize::from(slot.size).min(values.len()));
        let number = bytes
            .iter()
            .rev()
            .fold(0u64, |number, &byte| number << 8 | u64::from(byte));
        let _ = write!(
            text,
            " [{} {:?}.{} {number:#x}]",
            slot.instruction, slot.kind, slot.detail
        );
        values = rest;
    }
    text
}

fn event_text(event: &Event) -> String {
    match event {
        Event::SyscallEnter(enter) => {
            let known = if enter.registers.is_some() {
                " with registers"
            } else {
                ""
            };
            format!("syscall {} {:x?}{known}", enter.number, enter.args)
        }
        other => format!("{other:x?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_begins_no_line() {
        assert_eq!(
            in_a_line("a\nthread 1\u{1b}[2J é"),
            "a\\u000athread 1\\u001b[2J é"
        );
    }
}
