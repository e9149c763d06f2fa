// SPDX-License-Identifier: MIT
//! A traced process: its modules, blocks and memory maps, read from META and MAPS.

use std::sync::Arc;

use crate::block::{Block, BlockId, BlockTable, ModuleId};
use crate::event::{decode_record, encode_record};
use crate::protocol as p;
use crate::thread::Thread;

/// Most faults that are reported; a hostile file may have one in every few bytes.
const MOST_FAULTS: usize = 1000;

/// A stretch of a module in memory, as the loader mapped it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Run-time addresses.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Where in the file its first byte stands.
    pub file_offset: u64,
    /// PROT_READ 1, PROT_WRITE 2, PROT_EXEC 4.
    pub prot: u32,
}

/// A file that the process had mapped to run code from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Given by the tracer in load order.
    pub id: ModuleId,
    /// Full path; empty where the tracer could not tell.
    pub path: String,
    /// Bytes of the GNU build-id note; empty when there is none.
    pub build_id: Vec<u8>,
    /// Run-time address of ELF vaddr 0.
    pub base: u64,
    /// Lowest run-time address.
    pub start: u64,
    /// First run-time address behind it.
    pub end: u64,
    /// Empty where the tracer did not tell them.
    pub segments: Vec<Segment>,
    /// CLOCK_MONOTONIC ns.
    pub load_ts: u64,
    /// CLOCK_MONOTONIC ns; `None`: it stayed to the end.
    pub unload_ts: Option<u64>,
}

impl Module {
    /// Is `addr` inside one of the segments (inside start..end if none is known)?
    pub fn contains(&self, addr: u64) -> bool {
        if self.segments.is_empty() {
            return (self.start..self.end).contains(&addr);
        }
        self.segments
            .iter()
            .any(|s| (s.start..s.end).contains(&addr))
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let record = p::ModuleLoad {
            ts: self.load_ts,
            module: self.id,
            segment_count: self.segments.len() as u32,
            base: self.base,
            start: self.start,
            end: self.end,
            build_id_bytes: self.build_id.len() as u32,
            path_bytes: self.path.len() as u32,
        };
        let mut segments = Vec::new();
        for s in &self.segments {
            let record = p::SegmentRecord {
                start: s.start,
                end: s.end,
                file_offset: s.file_offset,
                prot: s.prot,
                reserved: 0,
            };
            segments.extend_from_slice(bytemuck::bytes_of(&record));
        }
        let parts = [
            bytemuck::bytes_of(&record),
            &segments,
            &self.build_id,
            self.path.as_bytes(),
        ];
        encode_record(out, p::META_MODULE_LOAD, &parts);
    }
}

/// The text of /proc/PID/maps at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapsSnapshot {
    /// CLOCK_MONOTONIC ns.
    pub ts: u64,
    /// As the kernel wrote it, invalid UTF-8 replaced.
    pub text: String,
}

/// One image of one process: after exec there is a new `Process` with the same pid.
#[derive(Debug, Default)]
pub struct Process {
    /// As the recorder's pid namespace has it.
    pub pid: u32,
    /// As the process saw it at its start, in its own pid namespace; 0: unknown.
    pub parent_pid: u32,
    /// Number of the process's image, from 1.
    pub image: u32,
    /// The process called exec, so this image did not live to the process's end.
    pub replaced: bool,
    /// Path of the executable; empty when its record was lost.
    pub path: String,
    /// CLOCK_MONOTONIC ns of its first META chunk.
    pub start_ts: u64,
    pub(crate) threads: Vec<Thread>,
    pub(crate) modules: Vec<Module>,
    pub(crate) blocks: Arc<BlockTable>,
    pub(crate) maps: Vec<MapsSnapshot>,
}

impl Process {
    /// In the order in which they started.
    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }
    /// File name of the executable; empty when its path was lost.
    pub fn program(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
    /// In load order; unloaded ones stay.
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }
    /// `None`: the module's record is missing.
    pub fn module(&self, id: ModuleId) -> Option<&Module> {
        // Ids count from 1 in load order; only a damaged META breaks that.
        match self.modules.get((id as usize).wrapping_sub(1)) {
            Some(module) if module.id == id => Some(module),
            _ => self.modules.iter().find(|module| module.id == id),
        }
    }
    /// The module at a run-time address; of several that were there, the latest.
    pub fn module_at(&self, addr: u64) -> Option<&Module> {
        let holds = |module: &&Module| module.contains(addr);
        let loaded = self
            .modules
            .iter()
            .rev()
            .filter(|module| module.unload_ts.is_none())
            .find(holds);
        loaded.or_else(|| self.modules.iter().rev().find(holds))
    }
    /// `None`: the block's record is missing.
    #[inline]
    pub fn block(&self, id: BlockId) -> Option<&Block> {
        self.blocks.get(id)
    }
    /// In the order in which they were first built.
    pub fn blocks(&self) -> &[Block] {
        self.blocks.all()
    }
    /// Where a block stands in `blocks()`; `None` for a block that is not one of those.
    #[inline]
    pub fn index_of(&self, block: &Block) -> Option<usize> {
        index_in(self.blocks(), block)
    }
    /// Where a thread stands in `threads()`; `None` for a thread that is not one of those.
    pub fn thread_index(&self, thread: &Thread) -> Option<usize> {
        index_in(self.threads(), thread)
    }
    /// Snapshots of /proc/PID/maps, oldest first.
    pub fn maps(&self) -> &[MapsSnapshot] {
        &self.maps
    }
}

/// What one META payload adds to a process while a trace is opened.
pub(crate) struct MetaReader<'a> {
    pub process: &'a mut Process,
    pub blocks: &'a mut BlockTable,
    /// The tracer's own notes.
    pub notes: &'a mut Vec<String>,
    /// What was wrong with the records.
    pub faults: &'a mut Vec<String>,
}

impl MetaReader<'_> {
    /// Reads records up to the first unit that begins none. `partial`: a cut record
    /// at the end is no fault, the writer was killed in it.
    pub fn read(&mut self, mut payload: &[u8], partial: bool) {
        while payload.len() >= 2 && payload[..2] != [0, 0] {
            let Some((kind, record, taken)) = decode_record(payload) else {
                if !partial {
                    add_fault(self.faults, "a META record runs past its section".into());
                }
                return;
            };
            let last = payload[taken..].iter().take(8).all(|&byte| byte == 0);
            if let Err(fault) = self.record(kind, record) {
                if !(partial && last) {
                    add_fault(self.faults, fault.into());
                }
            }
            payload = &payload[taken..];
        }
    }

    fn record(&mut self, kind: u16, payload: &[u8]) -> Result<(), &'static str> {
        match kind {
            p::META_PROCESS => {
                let record: p::ProcessRecord =
                    p::read(payload).ok_or("process record is too short")?;
                let path = payload
                    .get(std::mem::size_of::<p::ProcessRecord>()..)
                    .unwrap_or_default();
                let path = path
                    .get(..record.path_bytes as usize)
                    .ok_or("process path is cut")?;
                self.process.parent_pid = record.parent_pid;
                self.process.path = String::from_utf8_lossy(path).into_owned();
            }
            p::META_MODULE_LOAD => self.process.modules.push(decode_module(payload)?),
            p::META_MODULE_UNLOAD => {
                let record: p::ModuleUnload =
                    p::read(payload).ok_or("module record is too short")?;
                let module = self
                    .process
                    .modules
                    .iter_mut()
                    .rev()
                    .find(|m| m.id == record.module);
                module
                    .ok_or("a module is unloaded that was never loaded")?
                    .unload_ts = Some(record.ts);
            }
            p::META_BLOCK => {
                let fresh = self.blocks.insert(Block::decode(payload)?);
                return fresh
                    .then_some(())
                    .ok_or("one block id stands for two blocks");
            }
            p::META_NOTE => self
                .notes
                .push(String::from_utf8_lossy(payload).into_owned()),
            _ => {}
        }
        Ok(())
    }
}

fn decode_module(payload: &[u8]) -> Result<Module, &'static str> {
    let record: p::ModuleLoad = p::read(payload).ok_or("module record is too short")?;
    let segment_size = std::mem::size_of::<p::SegmentRecord>();
    let segments_start = std::mem::size_of::<p::ModuleLoad>();
    let id_start = segments_start + record.segment_count as usize * segment_size;
    let path_start = id_start + record.build_id_bytes as usize;
    let encoded = payload
        .get(segments_start..id_start)
        .ok_or("module's segments are cut")?;
    let build_id = payload
        .get(id_start..path_start)
        .ok_or("module's build id is cut")?;
    let path = payload
        .get(path_start..path_start + record.path_bytes as usize)
        .ok_or("module's path is cut")?;
    let segments = encoded
        .chunks_exact(segment_size)
        .filter_map(p::read::<p::SegmentRecord>)
        .map(|s| Segment {
            start: s.start,
            end: s.end,
            file_offset: s.file_offset,
            prot: s.prot,
        })
        .collect();
    Ok(Module {
        id: record.module,
        path: String::from_utf8_lossy(path).into_owned(),
        build_id: build_id.to_vec(),
        base: record.base,
        start: record.start,
        end: record.end,
        segments,
        load_ts: record.ts,
        unload_ts: None,
    })
}

/// How many bytes of a META chunk that is still being written can be taken: all
/// records whose header is there, which tracers write last.
pub fn settled_records(raw: &[u8]) -> usize {
    let mut at = 0;
    while let Some((_, _, taken)) = decode_record(&raw[at..]) {
        at += taken;
    }
    at
}

/// `slice::element_offset`, which Rust has only from 1.94 on.
#[inline]
fn index_in<T>(all: &[T], one: &T) -> Option<usize> {
    let bytes = (std::ptr::from_ref(one) as usize).checked_sub(all.as_ptr() as usize)?;
    let index = bytes / size_of::<T>();
    (index < all.len()).then_some(index)
}

/// The first of many are enough, and the same fault is reported once.
pub(crate) fn add_fault(faults: &mut Vec<String>, text: String) {
    if faults.len() < MOST_FAULTS && faults.last() != Some(&text) {
        faults.push(text);
    }
}
