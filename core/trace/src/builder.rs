// SPDX-License-Identifier: MIT
//! Traces that no tracer of ours recorded (tests, other tools' traces): a program's execution
//! spelled out block by block, through the same encoder and reader as a recorded one.

use std::collections::BTreeMap;

use bytemuck::bytes_of;

use crate::block::{Block, BlockId, ModuleId, Slot};
use crate::container::SectionKind;
use crate::error::Result;
use crate::event::{encode_record, Event, Registers};
use crate::info::{End, Info, Level, Note};
use crate::process::Module;
use crate::protocol as p;
use crate::trace::Trace;
use crate::writer::{SectionMeta, TraceWriter};

/// Flow and values are cut into sections of this many bytes unless told otherwise.
const SECTION_BYTES: usize = 1 << 20;

/// Names a thread of a [`TraceBuilder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadHandle(usize);

/// Builds a trace in memory. Times are synthetic, one ns a call, except where [`TraceBuilder::now`]
/// tells them.
pub struct TraceBuilder {
    writer: TraceWriter<Vec<u8>>,
    processes: BTreeMap<u32, ProcessState>,
    threads: Vec<ThreadState>,
    section_bytes: usize,
    clock: u64,
    end: End,
}

struct ProcessState {
    meta: Vec<u8>,
    blocks: Vec<Block>,
    modules: u32,
    ts_open: u64,
    maps: Vec<(u64, String)>,
}

struct ThreadState {
    pid: u32,
    tid: u32,
    name: String,
    flow: StreamState,
    values: StreamState,
    checkpoint: Registers,
    /// The next block opens a VALUES section.
    open_values: bool,
    values_on: bool,
    killed: bool,
}

#[derive(Default)]
struct StreamState {
    bytes: Vec<u8>,
    seq: u64,
    start_pos: u64,
    ts_open: u64,
    lost: u64,
}

impl TraceBuilder {
    /// A trace of the tracer `synthetic`.
    pub fn new(level: Level) -> Result<Self> {
        let info = Info {
            tracer: "synthetic".into(),
            level,
            ..Info::default()
        };
        Self::with_info(&info)
    }

    /// A trace with this INFO.
    pub fn with_info(info: &Info) -> Result<Self> {
        Ok(TraceBuilder {
            writer: TraceWriter::new(Vec::new(), info)?,
            processes: BTreeMap::new(),
            threads: Vec::new(),
            section_bytes: SECTION_BYTES,
            clock: 1_000,
            end: End::default(),
        })
    }

    /// Cuts sections at `bytes`, so that a small test has several.
    pub fn section_bytes(&mut self, bytes: usize) -> &mut Self {
        self.section_bytes = bytes.max(512);
        self
    }

    /// It is `ns` now (CLOCK_MONOTONIC); a time that has passed changes nothing.
    pub fn now(&mut self, ns: u64) {
        self.clock = self.clock.max(ns);
    }

    /// Something that was announced while recording.
    pub fn note(&mut self, note: &Note) -> Result<()> {
        self.writer.note(note)
    }

    /// How the recording ended; its time and counts are filled in.
    pub fn end(&mut self, end: End) {
        self.end = end;
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Adds a process; its modules, blocks and maps come after it. `path`: of the executable.
    pub fn process(&mut self, pid: u32, parent_pid: u32, path: &str) {
        let ts = self.tick();
        let record = p::ProcessRecord {
            ts,
            pid,
            parent_pid,
            path_bytes: path.len() as u32,
            reserved: 0,
        };
        let mut meta = Vec::new();
        encode_record(
            &mut meta,
            p::META_PROCESS,
            &[bytes_of(&record), path.as_bytes()],
        );
        let state = ProcessState {
            meta,
            blocks: Vec::new(),
            modules: 0,
            ts_open: ts,
            maps: Vec::new(),
        };
        self.processes.insert(pid, state);
    }

    fn process_mut(&mut self, pid: u32) -> &mut ProcessState {
        self.processes
            .get_mut(&pid)
            .expect("TraceBuilder::process comes first")
    }

    /// Adds a module; its `id` is assigned.
    pub fn module(&mut self, pid: u32, module: Module) -> ModuleId {
        let load_ts = self.tick();
        let process = self.process_mut(pid);
        process.modules += 1;
        let id = process.modules;
        Module {
            id,
            load_ts,
            ..module
        }
        .encode(&mut process.meta);
        id
    }

    /// Adds a block; ids count from 1.
    pub fn block(
        &mut self,
        pid: u32,
        module: Option<ModuleId>,
        pc: u64,
        code: &[u8],
        instruction_count: u16,
        slots: &[Slot],
    ) -> BlockId {
        let id = self.process_mut(pid).blocks.len() as u32 + 1;
        self.block_with_id(pid, id, module, pc, code, instruction_count, slots)
    }

    /// Adds a block under an id of the caller's choice (to reach long ids).
    #[allow(clippy::too_many_arguments)]
    pub fn block_with_id(
        &mut self,
        pid: u32,
        id: BlockId,
        module: Option<ModuleId>,
        pc: u64,
        code: &[u8],
        instruction_count: u16,
        slots: &[Slot],
    ) -> BlockId {
        let block = Block {
            id,
            pc,
            module,
            code: code.into(),
            instruction_count,
            slots: slots.into(),
            slot_bytes: slots.iter().map(|slot| u32::from(slot.size)).sum(),
        };
        let process = self.process_mut(pid);
        block.encode(&mut process.meta);
        process.blocks.push(block);
        id
    }

    /// Adds a MAPS section: `text` as of /proc/PID/maps, at this moment.
    pub fn maps(&mut self, pid: u32, text: &str) {
        let ts = self.tick();
        self.process_mut(pid).maps.push((ts, text.to_owned()));
    }

    /// Starts a thread (with its `ThreadStart` event). `creator_tid` 0: the first.
    pub fn thread(
        &mut self,
        pid: u32,
        tid: u32,
        creator_tid: u32,
        name: &str,
        start_pc: u64,
    ) -> ThreadHandle {
        let start = Event::ThreadStart {
            tid,
            creator_tid,
            ts: self.tick(),
            fs_base: 0,
            stack_pointer: 0,
            start_pc,
        };
        self.started(pid, tid, name, &start)
    }

    /// Starts a thread with this `ThreadStart` event.
    pub fn started(&mut self, pid: u32, tid: u32, name: &str, start: &Event) -> ThreadHandle {
        let ts = self.tick();
        let stream = || StreamState {
            ts_open: ts,
            ..StreamState::default()
        };
        self.threads.push(ThreadState {
            pid,
            tid,
            name: name.to_owned(),
            flow: stream(),
            values: stream(),
            checkpoint: Registers::default(),
            open_values: true,
            values_on: true,
            killed: false,
        });
        let handle = ThreadHandle(self.threads.len() - 1);
        self.event(handle, start);
        handle
    }

    /// The thread's registers at the entry of the next block; opens a VALUES section.
    pub fn checkpoint(&mut self, thread: ThreadHandle, registers: Registers) {
        self.cut_values(thread.0);
        self.threads[thread.0].checkpoint = registers;
    }

    /// Executes blocks without slots.
    pub fn run(&mut self, thread: ThreadHandle, blocks: &[BlockId]) {
        for &block in blocks {
            self.run_with_values(thread, block, &[]);
        }
    }

    /// Executes one block whose slots hold `values`.
    pub fn run_with_values(&mut self, thread: ThreadHandle, block: BlockId, values: &[u8]) {
        let index = thread.0;
        let section_bytes = self.section_bytes;
        self.make_room(index, 4);
        let state = &mut self.threads[index];
        let pos = state.flow.start_pos + state.flow.bytes.len() as u64;
        // A checkpoint belongs to the very next block, even if that has no slots.
        let has_registers = state.open_values && state.checkpoint.valid != 0;
        if (has_registers || !values.is_empty()) && state.values_on {
            if state.values.bytes.len() + values.len() > section_bytes {
                self.cut_values(index);
            }
            let state = &mut self.threads[index];
            if state.open_values {
                state.open_values = false;
                state.values.start_pos = pos;
                state
                    .values
                    .bytes
                    .extend_from_slice(bytes_of(&state.checkpoint.values));
            }
            state.values.bytes.extend_from_slice(values);
        }
        let flow = &mut self.threads[index].flow.bytes;
        if block < u32::from(p::FLOW_LONG) {
            flow.extend_from_slice(&(block as u16).to_le_bytes());
        } else {
            flow.extend_from_slice(&(p::FLOW_LONG + (block >> 16) as u16).to_le_bytes());
            flow.extend_from_slice(&(block as u16).to_le_bytes());
        }
    }

    /// Adds an event to the thread's flow, behind what it did so far.
    pub fn event(&mut self, thread: ThreadHandle, event: &Event) {
        let mut encoded = Vec::new();
        event.encode(&mut encoded);
        self.make_room(thread.0, encoded.len());
        let state = &mut self.threads[thread.0];
        match event {
            Event::ValuesOff => state.values_on = false,
            Event::ValuesOn => state.values_on = true,
            _ => {}
        }
        state.flow.bytes.extend_from_slice(&encoded);
    }

    /// The thread's last chunks were still open when they were collected.
    pub fn killed(&mut self, thread: ThreadHandle) {
        self.threads[thread.0].killed = true;
    }

    /// Takes `sections` VALUES chunks to be lost here.
    pub fn lose_values(&mut self, thread: ThreadHandle, sections: u64) {
        self.cut_values(thread.0);
        let values = &mut self.threads[thread.0].values;
        values.seq += sections;
        values.lost += sections;
    }

    fn make_room(&mut self, index: usize, bytes: usize) {
        if self.threads[index].flow.bytes.len() + bytes > self.section_bytes {
            self.cut(index, SectionKind::Flow, false);
            // Chunks end together.
            if !self.threads[index].open_values {
                self.cut_values(index);
            }
        }
    }

    fn cut_values(&mut self, index: usize) {
        self.cut(index, SectionKind::Values, false);
        self.threads[index].open_values = true;
        // The registers of the old checkpoint are no longer true.
        self.threads[index].checkpoint = Registers::default();
    }

    fn cut(&mut self, index: usize, kind: SectionKind, partial: bool) {
        let ts = self.tick();
        let state = &mut self.threads[index];
        let regs_valid = if kind == SectionKind::Values {
            state.checkpoint.valid
        } else {
            0
        };
        let stream = if kind == SectionKind::Values {
            &mut state.values
        } else {
            &mut state.flow
        };
        if stream.bytes.is_empty() {
            return;
        }
        let meta = SectionMeta {
            kind,
            partial,
            pid: state.pid,
            tid: state.tid,
            seq: stream.seq,
            start_pos: stream.start_pos,
            ts_open: stream.ts_open,
            ts_full: if partial { 0 } else { ts },
            lost: std::mem::take(&mut stream.lost),
            regs_valid,
            image_ts: 0,
        };
        let bytes = std::mem::take(&mut stream.bytes);
        stream.seq += 1;
        stream.ts_open = ts;
        if kind == SectionKind::Flow {
            stream.start_pos += bytes.len() as u64;
        }
        self.writer
            .section(&meta, &bytes)
            .expect("writing to memory");
    }

    /// The trace file's bytes.
    pub fn into_bytes(mut self) -> Result<Vec<u8>> {
        for index in 0..self.threads.len() {
            let partial = self.threads[index].killed;
            self.cut(index, SectionKind::Flow, partial);
            self.cut(index, SectionKind::Values, partial);
        }
        let ts = self.tick();
        let TraceBuilder {
            mut writer,
            processes,
            threads,
            end,
            ..
        } = self;
        for (pid, process) in &processes {
            let meta = SectionMeta {
                pid: *pid,
                ts_open: process.ts_open,
                ts_full: ts,
                ..SectionMeta::new(SectionKind::Meta)
            };
            // META may exceed one section in a large synthetic trace.
            let mut start_pos = 0;
            for (seq, part) in split_records(&process.meta).into_iter().enumerate() {
                let ts_open = process.ts_open + u64::from(seq > 0);
                let seq = seq as u64;
                writer.section(
                    &SectionMeta {
                        seq,
                        start_pos,
                        ts_open,
                        ..meta
                    },
                    part,
                )?;
                start_pos += part.len() as u64;
            }
            for (ts_open, text) in &process.maps {
                let meta = SectionMeta {
                    pid: *pid,
                    ts_open: *ts_open,
                    ..SectionMeta::new(SectionKind::Maps)
                };
                writer.section(&meta, text.as_bytes())?;
            }
            let names: BTreeMap<u32, &str> = threads
                .iter()
                .filter(|t| t.pid == *pid)
                .map(|t| (t.tid, t.name.as_str()))
                .collect();
            let text = serde_json::to_vec(&names).unwrap_or_default();
            writer.section(
                &SectionMeta {
                    pid: *pid,
                    ts_open: ts,
                    ..SectionMeta::new(SectionKind::Names)
                },
                &text,
            )?;
        }
        writer.finish(End { ts, ..end })
    }

    /// The trace, opened.
    pub fn finish(self) -> Result<Trace> {
        Trace::from_bytes(self.into_bytes()?)
    }
}

/// Cuts META bytes into parts of about a megabyte, between records.
fn split_records(meta: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    let (mut start, mut at) = (0, 0);
    while let Some((_, _, taken)) = crate::event::decode_record(&meta[at..]) {
        if at + taken - start > SECTION_BYTES && at > start {
            parts.push(&meta[start..at]);
            start = at;
        }
        at += taken;
    }
    parts.push(&meta[start..at]);
    parts
}
