// SPDX-License-Identifier: MIT
//! The META stream: the process, its modules and its blocks. Written seldom, under one lock.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use bytemuck::bytes_of;
use flagfinder_trace::protocol::{self as p, Record, SlotRecord};
use rustc_hash::FxHashMap;

use crate::memory::Lock;
use crate::modules::{self, Module, Range};
use crate::pool::{self, Buffer};
use crate::sys;

/// What one address holds: code bytes and slots are what tells versions apart.
struct Version {
    id: u32,
    code: Vec<u8>,
    module: u32,
    slots: Vec<SlotRecord>,
}

struct Meta {
    buffer: Buffer,
    at: usize,
    /// By start address.
    modules: BTreeMap<u64, Module>,
    /// Code of Frida and of this library.
    foreign: Vec<Range>,
    last_module: u32,
    last_block: u32,
    blocks: Option<FxHashMap<u64, Vec<Version>>>,
}

static META: Lock<Meta> = Lock::new(Meta {
    buffer: Buffer::none(),
    at: 0,
    modules: BTreeMap::new(),
    foreign: Vec::new(),
    last_module: 0,
    last_block: 0,
    blocks: None,
});
/// Code may have been mapped or unmapped since the maps were read.
static STALE: AtomicBool = AtomicBool::new(false);

/// Begins the stream. False: no address space.
pub fn begin() -> bool {
    let mut meta = META.hold();
    let Some(buffer) = Buffer::new() else {
        return false;
    };
    meta.at = buffer.end;
    meta.buffer = buffer;
    meta.blocks = Some(FxHashMap::default());
    let mut path = [0u8; 4096];
    let got = sys::call3(
        sys::READLINK,
        c"/proc/self/exe".as_ptr() as usize,
        path.as_mut_ptr() as usize,
        path.len(),
    );
    let path = &path[..usize::try_from(got).unwrap_or(0)];
    let process = p::ProcessRecord {
        ts: pool::image_ts(),
        pid: sys::pid(),
        parent_pid: sys::call3(sys::GETPPID, 0, 0, 0) as u32,
        path_bytes: path.len() as u32,
        reserved: 0,
    };
    meta.write(p::META_PROCESS, &[bytes_of(&process), path]);
    meta.look();
    true
}

/// A fallback or warning, for the trace.
pub fn note(text: &str) {
    META.hold().write(p::META_NOTE, &[text.as_bytes()]);
}

/// A system call changed what code is mapped where.
pub fn mark_stale() {
    STALE.store(true, Ordering::Relaxed);
}

/// Is `pc` in a module, so that unmapping it matters?
pub fn touches_module(start: u64, bytes: u64) -> bool {
    let meta = META.hold();
    let before = meta
        .modules
        .range(..start.saturating_add(bytes))
        .next_back();
    before.is_some_and(|(_, module)| module.end > start)
}

/// Frida's code, or ours: nothing of the program.
pub fn is_foreign(pc: u64) -> bool {
    META.hold().foreign.iter().any(|range| range.holds(pc))
}

/// The id of the block, new or old; a new one is described.
pub fn block_id(pc: u64, code: &[u8], instructions: u16, slots: &[SlotRecord]) -> u32 {
    let mut meta = META.hold();
    if STALE.swap(false, Ordering::Relaxed) {
        meta.look();
    }
    let module = meta.module_at(pc);
    let same = |version: &&Version| {
        version.code == code && version.module == module && version.slots.len() == slots.len()
    };
    let known = meta.blocks.as_ref().and_then(|blocks| blocks.get(&pc));
    if let Some(version) = known.and_then(|versions| versions.iter().find(same)) {
        return version.id;
    }
    meta.last_block += 1;
    let block = p::BlockRecord {
        id: meta.last_block,
        module,
        pc,
        code_bytes: code.len() as u32,
        instruction_count: instructions,
        slot_count: slots.len() as u16,
    };
    meta.write(
        p::META_BLOCK,
        &[bytes_of(&block), code, bytemuck::cast_slice(slots)],
    );
    let version = Version {
        id: block.id,
        code: code.to_vec(),
        module,
        slots: slots.to_vec(),
    };
    if let Some(blocks) = &mut meta.blocks {
        blocks.entry(pc).or_default().push(version);
    }
    block.id
}

/// Hands over what stands in the stream, before an exec that may end the image.
pub fn flush() {
    let mut meta = META.hold();
    let used = meta.at - meta.buffer.base();
    if meta.buffer.has_chunk() {
        meta.buffer.publish(used);
        meta.at = meta.buffer.end;
    }
}

impl Meta {
    fn write(&mut self, kind: u16, parts: &[&[u8]]) {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let record = Record {
            magic: p::FLOW_EVENT,
            kind,
            bytes: bytes as u32,
        };
        let header = std::mem::size_of::<Record>();
        let whole = header + bytes + bytes % 2;
        if whole > self.buffer.end - self.at {
            let used = self.at - self.buffer.base();
            self.buffer.publish(used);
            self.buffer.claim(p::STREAM_META, 0, 0);
            self.at = self.buffer.base();
        }
        // SAFETY: there is room in the window.
        unsafe {
            let mut to = (self.at + header) as *mut u8;
            for part in parts {
                std::ptr::copy_nonoverlapping(part.as_ptr(), to, part.len());
                to = to.add(part.len());
            }
            let at = self.at as *mut u8;
            std::ptr::copy_nonoverlapping(bytes_of(&record).as_ptr().add(2), at.add(2), header - 2);
            // The recorder reads META while it grows and goes by the magic.
            std::sync::atomic::fence(Ordering::Release);
            (at as *mut u16).write(record.magic);
        }
        self.at += whole;
    }

    fn module_at(&self, pc: u64) -> u32 {
        let before = self.modules.range(..=pc).next_back();
        before
            .filter(|(_, module)| pc < module.end)
            .map_or(0, |(_, module)| module.number)
    }

    /// Reads the maps and says what was loaded and unloaded.
    fn look(&mut self) {
        let (found, foreign) = modules::mapped(self.foreign.is_empty());
        self.foreign.extend(foreign);
        let gone: Vec<u64> = self
            .modules
            .iter()
            .filter(|(start, old)| {
                !found
                    .iter()
                    .any(|new| new.start == **start && new.path == old.path)
            })
            .map(|(start, _)| *start)
            .collect();
        for start in gone {
            if let Some(old) = self.modules.remove(&start) {
                let unload = p::ModuleUnload {
                    ts: sys::now(),
                    module: old.number,
                    reserved: 0,
                };
                self.write(p::META_MODULE_UNLOAD, &[bytes_of(&unload)]);
            }
        }
        for mut module in found {
            if self.modules.contains_key(&module.start) {
                continue;
            }
            self.last_module += 1;
            module.number = self.last_module;
            let load = p::ModuleLoad {
                ts: sys::now(),
                module: module.number,
                segment_count: module.segments.len() as u32,
                base: module.base,
                start: module.start,
                end: module.end,
                build_id_bytes: module.build_id.len() as u32,
                path_bytes: module.path.len() as u32,
            };
            self.write(
                p::META_MODULE_LOAD,
                &[
                    bytes_of(&load),
                    bytemuck::cast_slice(&module.segments),
                    &module.build_id,
                    &module.path,
                ],
            );
            self.modules.insert(module.start, module);
        }
    }
}
