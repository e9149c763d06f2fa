// SPDX-License-Identifier: MIT
//! Names of data: which sort of memory an address is, tried in a fixed order: module
//! segment, known thread-local block, stack, computed thread-local block, heap object,
//! mapping. The order matters: a static program's thread block can lie in its .bss.

use crate::heap::Allocation;
use crate::input::{StackFrame, ThreadInput};
use crate::maps::{Mapping, Maps};
use crate::name::{Code, DataHome, DataKind, DataName};
use crate::names::Names;
use crate::register::RSP;
use crate::symbols::{demangle, with_offset, without_arguments};

/// glibc's `struct pthread` is 0x900 bytes; musl's is smaller.
const THREAD_CONTROL_BYTES: u64 = 0x900;
/// If no frames are known, so much memory below the start of a stack within a larger mapping counts
/// as stack.
const UNKNOWN_STACK_BYTES: u64 = 16 << 10;

/// A C library starts a thread at most so far below its block and thread-local memory.
const BELOW_BLOCK: u64 = 16 << 10;

const KERNEL_STACK: &str = "[stack]";
const ANONYMOUS_SHARED: &str = "/dev/zero";

impl Names {
    /// The name of a word of data.
    pub fn data(&self, address: u64) -> DataName {
        if let Some((module, offset)) = self.locate(address) {
            return self.module_data(module, offset);
        }
        let tls = |(module, tid, offset)| self.tls_name(module, tid, offset);
        self.known_tls(address)
            .map(tls)
            .or_else(|| self.stack(address))
            .or_else(|| self.computed_tls(address).map(tls))
            .or_else(|| self.thread_control(address))
            .or_else(|| self.heap(address))
            .unwrap_or_else(|| self.mapped(address))
    }

    /// Nobody can change it while the program runs: read-only segments, RELRO, GOT, PLT,
    /// the kernel's pages, memory mapped without write permission.
    pub fn is_fixed(&self, address: u64) -> bool {
        match self.locate(address) {
            Some((module, offset)) => matches!(
                self.module_kind(module, offset),
                DataKind::ReadOnly | DataKind::Linkage | DataKind::Kernel
            ),
            None => self
                .mapping(address)
                .is_some_and(|m| !m.writable && !m.shared),
        }
    }

    /// Constants of a module's read-only segment, from its file; shorter or empty where there are
    /// none.
    pub fn constants(&self, address: u64, count: usize) -> Vec<u8> {
        let found = self
            .locate(address)
            .and_then(|(module, offset)| self.image(module).constants(offset, count));
        found.unwrap_or_default()
    }

    /// Is it mapped so that the program may write it at any time?
    pub fn is_writable(&self, address: u64) -> bool {
        self.mapping(address).is_some_and(|m| m.writable)
    }

    /// Threads are numbered in order of creation, the first being 0.
    pub fn thread_ordinal(&self, tid: u32) -> Option<usize> {
        self.input.threads.iter().position(|t| t.tid == tid)
    }

    /// `thread 2 'worker'`.
    pub fn thread_label(&self, tid: u32) -> String {
        let Some(ordinal) = self.thread_ordinal(tid) else {
            return format!("thread {tid}");
        };
        match &self.input.threads[ordinal].name[..] {
            "" => format!("thread {ordinal}"),
            name => format!("thread {ordinal} '{name}'"),
        }
    }

    /// Whose stack holds the address, and how many bytes below the stack's start.
    pub fn stack_place(&self, address: u64) -> Option<(u32, u64)> {
        let threads = self.input.threads.iter().enumerate();
        let owners = threads.filter_map(|(ordinal, thread)| {
            let (start, end) = self.stack_extent(ordinal, thread)?;
            (start..end).contains(&address).then_some((end, thread))
        });
        let (end, thread) = owners.min_by_key(|(end, _)| *end)?;
        let top = thread
            .stack_pointer
            .filter(|&top| top > address)
            .unwrap_or(end);
        Some((thread.tid, top - address))
    }

    /// What is mapped there, and how many bytes from its start: the same in a fresh run
    /// as long as the program maps memory alike.
    pub fn mapping_place(&self, address: u64) -> Option<(&str, u64)> {
        let mapping = self.mapping(address)?;
        Some((mapping.file(), address - mapping.start))
    }

    /// Module, thread and offset in the module's block, of a thread-local word.
    pub(crate) fn thread_local(&self, address: u64) -> Option<(usize, u32, u64)> {
        self.known_tls(address)
            .or_else(|| self.computed_tls(address))
    }

    fn known_tls(&self, address: u64) -> Option<(usize, u32, u64)> {
        self.input.tls_blocks.iter().find_map(|block| {
            let bytes = self.image(block.module).tls?.bytes;
            let offset = address.checked_sub(block.start)?;
            (offset < bytes).then_some((block.module, block.tid, offset))
        })
    }

    fn computed_tls(&self, address: u64) -> Option<(usize, u32, u64)> {
        self.input.threads.iter().find_map(|thread| {
            let fs_base = thread.fs_base?;
            let mut blocks = self.layout().iter().enumerate();
            blocks.find_map(|(module, distance)| {
                let start = fs_base.checked_sub((*distance)?)?;
                let bytes = self.image(module).tls.map_or(0, |tls| tls.bytes);
                let mut known = self.input.tls_blocks.iter();
                let read = known.any(|b| b.module == module && b.tid == thread.tid);
                let inside = !read && address >= start && address - start < bytes;
                inside.then_some((module, thread.tid, address.wrapping_sub(start)))
            })
        })
    }

    /// Around a thread's fs_base: the C library's own words, and gaps between blocks.
    fn thread_control(&self, address: u64) -> Option<DataName> {
        self.input.threads.iter().find_map(|thread| {
            let fs_base = self.block_of(thread)?;
            let lowest = fs_base.saturating_sub(self.tls_bytes());
            let inside = (lowest..fs_base.saturating_add(THREAD_CONTROL_BYTES)).contains(&address);
            inside.then(|| self.thread_control_name(thread, address.wrapping_sub(fs_base) as i64))
        })
    }

    /// Bytes of static thread-local blocks below fs_base.
    fn tls_bytes(&self) -> u64 {
        self.layout().iter().flatten().copied().max().unwrap_or(0)
    }

    fn thread_control_name(&self, thread: &ThreadInput, offset: i64) -> DataName {
        let sign = if offset < 0 { "-" } else { "" };
        DataName {
            kind: DataKind::ThreadControl,
            name: format!(
                "thread block of {} at fs:{sign}{:#x}",
                self.thread_label(thread.tid),
                offset.unsigned_abs()
            ),
            module: None,
            offset: None,
            symbol: None,
            field: None,
            near: None,
            home: DataHome::ThreadControl {
                tid: thread.tid,
                offset,
            },
        }
    }

    fn tls_name(&self, module: usize, tid: u32, offset: u64) -> DataName {
        let image = self.image(module);
        let file = self.input.modules[module].identity.name.to_string();
        let found = image
            .symbols
            .tls
            .covering(offset, &(offset..offset.saturating_add(1)));
        let debug = image.debug();
        let variable = debug.and_then(|d| Some((d, d.thread_local(offset)?)));
        let field = variable.and_then(|(d, v)| d.field(v.kind, offset - v.address));
        let symbol = found
            .map(|f| demangle(f.name))
            .or_else(|| variable.map(|(_, v)| v.name.clone()));
        let place = format!("tls of {file}+{offset:#x} in {}", self.thread_label(tid));
        let start = found.map(|f| f.start);
        let start = start.or_else(|| variable.map(|(_, v)| v.address));
        let start = start.unwrap_or(offset);
        let name = match (&symbol, &field) {
            (Some(symbol), Some(field)) => format!("{symbol}{field} ({place})"),
            (Some(symbol), None) => format!("{} ({place})", with_offset(symbol, offset - start)),
            (None, _) => place,
        };
        DataName {
            kind: DataKind::Tls,
            name,
            module: Some(file.clone()),
            offset: Some(offset),
            symbol,
            field: field.filter(|f| !f.is_empty()),
            near: None,
            home: DataHome::Tls {
                module: file,
                offset,
                tid,
            },
        }
    }

    fn stack(&self, address: u64) -> Option<DataName> {
        let framed = self.input.threads.iter().find_map(|thread| {
            let frame = thread
                .frames
                .iter()
                .find(|f| (f.sp..f.cfa).contains(&address))?;
            Some((thread, frame))
        });
        if let Some((thread, frame)) = framed {
            return Some(self.frame_name(thread, frame, address));
        }
        let (tid, below) = self.stack_place(address)?;
        Some(DataName {
            kind: DataKind::Stack,
            name: format!(
                "stack of {}, {below:#x} below its start",
                self.thread_label(tid)
            ),
            module: None,
            offset: None,
            symbol: None,
            field: None,
            near: None,
            home: DataHome::Address { address },
        })
    }

    /// Run-time extent of a thread's stack; the first thread has the kernel's.
    fn stack_extent(&self, ordinal: usize, thread: &ThreadInput) -> Option<(u64, u64)> {
        let inside = thread.stack_pointer.or(thread.fs_base);
        let mapping = inside.and_then(|inside| self.mapping(inside.checked_sub(1)?));
        let from_kernel = self.kernel_stack().filter(|_| ordinal == 0);
        let mapping = from_kernel.or(mapping)?;
        if mapping.path == KERNEL_STACK {
            return Some((mapping.start, mapping.end));
        }
        if !mapping.path.is_empty() && !mapping.path.starts_with("[anon") {
            return None;
        }
        // A Go program takes stacks from its heap, but for those that the C library made.
        let is_of_heap = !thread.is_from_start && self.go_data().is_some();
        match self
            .block_of(thread)
            .filter(|_| !is_of_heap || self.has_c_library())
        {
            // The C library puts the thread's block on top of the stack it maps.
            Some(fs_base) if (mapping.start..mapping.end).contains(&fs_base) => {
                Some((mapping.start, fs_base.saturating_sub(self.tls_bytes())))
            }
            _ if is_of_heap => None,
            _ => {
                let top = thread.stack_pointer?;
                let start = top.saturating_sub(UNKNOWN_STACK_BYTES).max(mapping.start);
                Some((start, top))
            }
        }
    }

    fn has_c_library(&self) -> bool {
        const LIBRARIES: [&str; 2] = ["libc.so", "ld-musl"];
        self.input.modules.iter().any(|module| {
            let file = module.file.to_string_lossy();
            LIBRARIES.iter().any(|name| file.contains(name))
        })
    }

    /// Address of the C library's block of a thread. Go's threads have something else at fs_base,
    /// and far from their stack.
    fn block_of(&self, thread: &ThreadInput) -> Option<u64> {
        let began = thread.stack_pointer.filter(|_| thread.is_from_start);
        let lies_above = |base: &u64| {
            let reach = self.tls_bytes() + BELOW_BLOCK;
            began.is_none_or(|began| (began..=began + reach).contains(base))
        };
        thread.fs_base.filter(lies_above)
    }

    fn kernel_stack(&self) -> Option<&Mapping> {
        let newest_first = self.input.maps.iter().rev().flat_map(Maps::all);
        newest_first.into_iter().find(|m| m.path == KERNEL_STACK)
    }

    fn frame_name(&self, thread: &ThreadInput, frame: &StackFrame, address: u64) -> DataName {
        let function = self.caller(frame.pc);
        let below_cfa = frame.cfa - address;
        let registers = |register| (register == RSP).then_some(frame.sp);
        let found = self.frame_variable(
            frame.pc.wrapping_sub(1),
            Some(frame.cfa),
            &registers,
            address,
        );
        let bare = |symbol: &str| symbol.split("+0x").next().unwrap_or(symbol).to_owned();
        let owner = match &function.symbol {
            Some(symbol) => bare(symbol),
            None => function.to_string(),
        };
        let place = format!(
            "stack of {}: frame {owner}, rsp+{:#x}",
            self.thread_label(thread.tid),
            address - frame.sp
        );
        let (symbol, field) = match found {
            Some(found) => (Some(found.name), Some(found.word.path)),
            None => (None, None),
        };
        let name = match (&symbol, &field) {
            (Some(symbol), Some(field)) => format!("{symbol}{field} ({place})"),
            (Some(symbol), None) => format!("{symbol} ({place})"),
            (None, _) => place,
        };
        DataName {
            kind: DataKind::Stack,
            name,
            module: None,
            offset: None,
            symbol,
            field: field.filter(|f| !f.is_empty()),
            near: None,
            home: DataHome::Frame {
                tid: thread.tid,
                function: Box::new(function),
                below_cfa,
            },
        }
    }

    fn heap(&self, address: u64) -> Option<DataName> {
        let found: &Allocation = self.input.allocations.at(address)?;
        let offset = address - found.address;
        let site = self.caller(found.caller);
        // The outermost of those inlined there: the program's, not its library's.
        let whole = |code: &Code| match code.inlined.last() {
            Some(function) => format!("{} in {code}", without_arguments(function)),
            None => code.to_string(),
        };
        let by = match self.beyond(&site, found.address) {
            Some(outer) => format!("{} for {}", whole(&site), whole(&outer)),
            None => whole(&site),
        };
        let freed = if found.freed { ", freed since" } else { "" };
        let place = match offset {
            0 => "start".to_owned(),
            _ => format!("offset {offset}"),
        };
        Some(DataName {
            kind: DataKind::Heap,
            name: format!(
                "{place} of heap object of {} bytes allocated by {by} (its number {}){freed}",
                found.size, found.ordinal
            ),
            module: None,
            offset: Some(offset),
            symbol: None,
            field: None,
            near: None,
            home: DataHome::Heap {
                site: Box::new(site),
                ordinal: found.ordinal,
                size: found.size,
                offset,
            },
        })
    }

    /// Nothing but its mapping is known.
    fn mapped(&self, address: u64) -> DataName {
        let (kind, name, home) = match self.mapping(address) {
            None => (
                DataKind::Unknown,
                format!("{address:#x} (in no known mapping)"),
                DataHome::Address { address },
            ),
            Some(mapping) => {
                let within = address - mapping.start;
                let file = mapping.file();
                let is_file = file.starts_with('/');
                // A JIT compiler may write its code by another mapping of the same memory.
                let is_code = mapping.executable && !mapping.writable;
                let kind = match file {
                    _ if mapping.shared && !is_code => DataKind::Shared,
                    "[heap]" => DataKind::Heap,
                    KERNEL_STACK => DataKind::Stack,
                    _ if mapping.executable => DataKind::Code,
                    "" => DataKind::Anonymous,
                    _ if is_file => DataKind::File,
                    _ if file.starts_with("[anon") => DataKind::Anonymous,
                    _ => DataKind::Kernel,
                };
                let kib = (mapping.end - mapping.start) >> 10;
                let offset = mapping.file_offset.saturating_add(within);
                match kind {
                    // The kernel's name for it says so; the file has nothing to do with it.
                    DataKind::Shared if file == ANONYMOUS_SHARED => (
                        kind,
                        format!(
                            "{address:#x} (anonymous shared memory, {within:#x} into {kib} KiB)"
                        ),
                        DataHome::Address { address },
                    ),
                    DataKind::Shared | DataKind::File if !file.is_empty() => {
                        let path = file.to_owned();
                        (
                            kind,
                            format!("{file}+{offset:#x}"),
                            DataHome::Mapping { path, offset },
                        )
                    }
                    DataKind::Heap => (
                        kind,
                        format!("{address:#x} ([heap]+{within:#x})"),
                        DataHome::Address { address },
                    ),
                    DataKind::Code => (
                        kind,
                        format!("{address:#x} (executable memory without a module)"),
                        DataHome::Address { address },
                    ),
                    _ => {
                        let what = if file.is_empty() {
                            "anonymous memory"
                        } else {
                            file
                        };
                        let name = format!("{address:#x} ({what}, {within:#x} into {kib} KiB)");
                        (kind, name, DataHome::Address { address })
                    }
                }
            }
        };
        let offset = match &home {
            DataHome::Mapping { offset, .. } => Some(*offset),
            _ => None,
        };
        DataName {
            kind,
            name,
            module: None,
            offset,
            symbol: None,
            field: None,
            near: None,
            home,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::input::NamesInput;

    use super::*;

    #[test]
    fn memory_that_is_only_executed_is_code_even_if_it_is_shared() {
        let kind = |rights: &str| {
            let maps = format!("1000-2000 {rights} 00000000 00:01 7 \n");
            let names = Names::new(NamesInput::from_code_maps(&maps, 0));
            names.data(0x1800).kind
        };
        assert_eq!(kind("r-xs"), DataKind::Code, "written by another mapping");
        assert_eq!(kind("rwxs"), DataKind::Shared);
        assert_eq!(kind("rw-s"), DataKind::Shared);
    }
}
