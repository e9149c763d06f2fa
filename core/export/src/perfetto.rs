// SPDX-License-Identifier: MIT
//! A recording for the Perfetto UI: what its threads asked of the kernel, and when.

use std::io::Write;

use flagfinder_linux::syscalls;
use flagfinder_perfetto::{Annotation, Mark, Thread as Track, Writer};
use flagfinder_trace::{DecodedFlow, Event, SyscallEnter, Thread, Trace};

use crate::error::ExportError;

/// Writes a slice for each system call, an instant for each signal, thread start and exit, fork,
/// exec and gap. Times are CLOCK_MONOTONIC ns. Returns how many.
///
/// # Errors
/// When the recording can't be read or the output can't be written.
pub fn perfetto(trace: &Trace, out: &mut dyn Write) -> Result<u64, ExportError> {
    let processes = trace.processes().iter();
    let threads: Vec<(&Thread, Track)> = processes
        .flat_map(|process| {
            process.threads().iter().map(move |thread| {
                let track = Track {
                    pid: process.pid,
                    tid: thread.tid,
                    name: thread.name.clone(),
                    process_name: process.path.clone(),
                };
                (thread, track)
            })
        })
        .collect();
    let mut export = Export {
        output: Writer::new(out),
        marks: 0,
    };
    let tracks: Vec<Track> = threads.iter().map(|(_, track)| track.clone()).collect();
    export.output.threads(&tracks)?;
    for ((thread, _), number) in threads.iter().zip(0..) {
        export.thread(thread, number)?;
    }
    export.output.flush()?;
    Ok(export.marks)
}

struct Export<W: Write> {
    output: Writer<W>,
    marks: u64,
}

impl<W: Write> Export<W> {
    fn thread(&mut self, thread: &Thread, number: u32) -> Result<(), ExportError> {
        let mut decoder = thread.flow_decoder();
        let mut flow = DecodedFlow::default();
        // A handler makes calls of its own within an interrupted one.
        let mut open: Vec<SyscallEnter> = Vec::new();
        let mut last = thread.opened().map_or(0, |(_, last)| last);
        for section in 0..thread.flow_section_count() {
            decoder.decode_folded(section, &mut flow)?;
            for (_, _, event) in flow.events.drain(..) {
                match event {
                    Event::SyscallEnter(call) => {
                        last = last.max(call.ts);
                        open.push(*call);
                    }
                    Event::SyscallExit {
                        ts,
                        number: made,
                        result,
                    } => {
                        last = last.max(ts);
                        let known = open.iter().rposition(|call| call.number == made);
                        if let Some(index) = known {
                            let call = open.remove(index);
                            self.call(number, &call, ts, Some(result))?;
                        }
                    }
                    event => self.instant(number, &event)?,
                }
            }
        }
        for call in open {
            self.call(number, &call, last, None)?;
        }
        Ok(())
    }

    fn call(
        &mut self,
        thread: u32,
        call: &SyscallEnter,
        end: u64,
        result: Option<i64>,
    ) -> Result<(), ExportError> {
        let arguments = call
            .args
            .map(|argument| format!("{argument:#x}"))
            .join(", ");
        let outcome = result.map_or("did not return".into(), |result| result.to_string());
        let mark = Mark {
            thread,
            category: "syscall",
            name: syscalls::name(call.number),
            facts: vec![
                Annotation::text("arguments", arguments),
                Annotation::text("result", outcome),
            ],
            ..Mark::default()
        };
        self.marks += 1;
        Ok(self.output.slice(call.ts, end.max(call.ts), mark)?)
    }

    fn instant(&mut self, thread: u32, event: &Event) -> Result<(), ExportError> {
        let (ts, name) = match event {
            Event::Signal { ts, signo, .. } => (*ts, format!("signal {signo}")),
            Event::ThreadStart { ts, .. } => (*ts, "starts".into()),
            Event::ThreadExit { ts, status } => (*ts, format!("exits with {status}")),
            Event::Fork { ts, child_pid } => (*ts, format!("fork {child_pid}")),
            Event::Exec { ts, path } => (*ts, format!("exec {path}")),
            Event::Gap { ts, bytes } => (*ts, format!("{bytes} bytes of flow lost")),
            _ => return Ok(()),
        };
        let mark = Mark {
            thread,
            category: "thread",
            name,
            ..Mark::default()
        };
        self.marks += 1;
        Ok(self.output.instant(ts, mark)?)
    }
}
