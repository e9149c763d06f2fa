// SPDX-License-Identifier: MIT
//! What naming needs, from a running process: /proc, and its memory where the dynamic
//! linker left facts.
//!
//! Blind spots: registers need ptrace, so frames are the caller's to fill in, and so is `fs_base`
//! where a thread's block was not found in memory (then [`NamesInput::read_tls_blocks`] can follow
//! the dtv); allocations are not known.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use flagfinder_files::{facts_of, open_named};
use flagfinder_linux::proc::Status;
use flagfinder_trace::Segment;
use object::elf::{FileHeader64, PT_LOAD, PT_NOTE};
use object::read::elf::{FileHeader, ProgramHeader};
use object::Endianness;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::address_space::AddressSpace;
use crate::image::{Image, TlsRelocation};
use crate::input::{ModuleInput, NamesInput, ThreadInput, TlsBlock};
use crate::maps::{Mapping, Maps};
use crate::module::ModuleIdentity;
use crate::process_memory::ProcessMemory;
use crate::thread_blocks;

const PAGE: u64 = 4096;
/// glibc: "this thread has no block of that module yet".
const UNALLOCATED: u64 = u64::MAX;
/// A longer dtv is no dtv.
const MODULE_LIMIT: u64 = 1 << 16;

impl NamesInput {
    /// From /proc of a running process: modules, mappings, threads with their names and
    /// thread-local blocks.
    ///
    /// # Errors
    /// When the process is gone, or its memory may not be read.
    pub fn from_live(pid: u32) -> io::Result<NamesInput> {
        let root = flagfinder_linux::proc::path(pid, "");
        let maps = Maps::parse(&flagfinder_linux::proc::text(root.join("maps"))?);
        let memory = ProcessMemory::open(pid)?;
        let mut threads = threads(&root, pid)?;
        thread_blocks::find(&mut threads, &maps, &memory);
        let executable = fs::read_link(root.join("exe")).unwrap_or_default();
        let executable = executable.to_string_lossy();
        let file = |mapping: &Mapping| readable_file(&root, mapping);
        Ok(NamesInput::from_memory(
            maps,
            threads,
            &memory,
            &executable,
            file,
        ))
    }

    /// From mappings and what they hold. `executable`: its path in the mappings, which may end in `
    /// (deleted)`. `file` says where the file of a mapping can be read now.
    pub fn from_memory(
        maps: Maps,
        threads: Vec<ThreadInput>,
        memory: &dyn AddressSpace,
        executable: &str,
        file: impl Fn(&Mapping) -> PathBuf,
    ) -> NamesInput {
        let executable = executable.strip_suffix(" (deleted)").unwrap_or(executable);
        let mut modules = modules(&maps, memory, file);
        modules.sort_by_key(|m| m.path != executable);
        NamesInput {
            modules,
            maps: vec![maps],
            threads,
            ..NamesInput::default()
        }
    }

    /// Finds where modules' thread-local blocks lie in the threads whose `fs_base` is
    /// known, as the dynamic linker wrote it down: in GOT words and the dtv (glibc).
    ///
    /// # Errors
    /// When the process is gone, or its memory may not be read.
    pub fn read_tls_blocks(&mut self, pid: u32) -> io::Result<()> {
        let memory = ProcessMemory::open(pid)?;
        self.tls_blocks.clear();
        for (index, module) in self.modules.iter().enumerate() {
            let image = Image::load(module);
            for thread in &self.threads {
                let blocks = image.tls_relocations.iter();
                let start = thread.fs_base.and_then(|fs_base| {
                    blocks
                        .filter_map(|r| block_start(&memory, module.base, fs_base, r))
                        .next()
                });
                if let Some(start) = start {
                    self.tls_blocks.push(TlsBlock {
                        module: index,
                        tid: thread.tid,
                        start,
                    });
                }
            }
        }
        Ok(())
    }
}

fn block_start(
    memory: &dyn AddressSpace,
    base: u64,
    fs_base: u64,
    relocation: &TlsRelocation,
) -> Option<u64> {
    match *relocation {
        TlsRelocation::Distance { address, offset } => {
            let distance = memory.word(base.checked_add(address)?)?;
            // Negative: below fs_base. Zero and up: not filled in yet.
            let start = fs_base.wrapping_add(distance.wrapping_sub(offset));
            ((distance as i64) < 0 && start < fs_base).then_some(start)
        }
        TlsRelocation::ModuleNumber { address } => {
            let number = memory.word(base.checked_add(address)?)?;
            if number == 0 || number > MODULE_LIMIT {
                return None;
            }
            // tcbhead_t: self, dtv; dtv[n] is two words, dtv[-1] holds its length.
            let dtv = memory.word(fs_base.checked_add(8)?)?;
            let length = memory.word(dtv.checked_sub(16)?)?;
            if number > length || length > MODULE_LIMIT {
                return None;
            }
            let start = memory.word(dtv.checked_add(number * 16)?)?;
            (start != UNALLOCATED && start != 0).then_some(start)
        }
    }
}

fn threads(root: &Path, pid: u32) -> io::Result<Vec<ThreadInput>> {
    let mut threads = Vec::new();
    for entry in fs::read_dir(root.join("task"))? {
        let path = entry?.path();
        let tid = path.file_name().and_then(|n| n.to_str()?.parse().ok());
        let Some(tid) = tid else { continue };
        // A thread that ended meanwhile has no name any more.
        let status = Status::of_thread(pid, tid).ok();
        let name = status.as_ref().and_then(Status::name).unwrap_or_default();
        threads.push(ThreadInput {
            tid,
            own_id: status.as_ref().and_then(innermost_id).unwrap_or(tid),
            name: name.trim_end().to_owned(),
            stack_pointer: blocked_stack_pointer(&path),
            ..ThreadInput::default()
        });
    }
    threads.sort_by_key(|thread| thread.tid.wrapping_sub(pid));
    Ok(threads)
}

/// A thread's id as it sees it itself, and as its C library keeps it: another one in a pid
/// namespace that is not ours.
pub fn own_id(pid: u32, tid: u32) -> u32 {
    let status = Status::of_thread(pid, tid).ok();
    status.as_ref().and_then(innermost_id).unwrap_or(tid)
}

/// `NSpid:` has the thread's ids from our namespace inwards.
fn innermost_id(status: &Status) -> Option<u32> {
    status.numbers("NSpid:").last().copied()
}

/// The kernel tells the stack pointer of threads that are blocked.
fn blocked_stack_pointer(task: &Path) -> Option<u64> {
    let text = fs::read_to_string(task.join("syscall")).ok()?;
    let mut fields = text.split_whitespace().rev();
    let (_pc, sp) = (fields.next()?, fields.next()?);
    u64::from_str_radix(sp.strip_prefix("0x")?, 16).ok()
}

/// Files with an executable mapping, and the vdso.
fn modules(
    maps: &Maps,
    memory: &dyn AddressSpace,
    file: impl Fn(&Mapping) -> PathBuf,
) -> Vec<ModuleInput> {
    let mut modules: Vec<ModuleInput> = Vec::new();
    // A process may have as many mappings as it likes: each is looked for among those of its file.
    let mut files: FxHashMap<(&str, u64), Mapped> = FxHashMap::default();
    for mapping in maps.all() {
        let mapped = files.entry((&mapping.path, mapping.inode)).or_default();
        mapped.all.push(mapping);
        mapped
            .first_pages
            .extend((mapping.file_offset == 0).then_some(mapping));
    }
    let mut known: FxHashSet<u64> = FxHashSet::default();
    let executable = maps
        .all()
        .iter()
        .filter(|m| m.executable && !m.path.is_empty());
    for mapping in executable {
        let Some(mapped) = files.get_mut(&(&*mapping.path, mapping.inode)) else {
            continue;
        };
        let Some(first) = mapped.first_page(mapping.start) else {
            continue;
        };
        if known.contains(&mapping.start) || !mapped.asked.insert(first.start) {
            continue;
        }
        let Some(headers) = Headers::read(memory, first.start) else {
            continue;
        };
        let base = first.start.wrapping_sub(headers.first_page);
        let (low, high) = (first.start, base.wrapping_add(headers.end));
        let segments = mapped.between(low, high).map(|m| Segment {
            start: m.start,
            end: m.end,
            file_offset: m.file_offset,
            prot: u32::from(m.readable) | u32::from(m.writable) << 1 | u32::from(m.executable) << 2,
        });
        let mut segments: Vec<Segment> = segments.collect();
        known.extend(segments.iter().map(|segment| segment.start));
        if let Some(last) = segments.last_mut() {
            // .bss beyond the file is an anonymous mapping.
            last.end = last.end.max(high);
        }
        let file = mapped.file.get_or_insert_with(|| file(first));
        modules.push(ModuleInput {
            identity: ModuleIdentity::new(&mapping.path, &headers.build_id),
            path: mapping.file().to_owned(),
            file: file.clone(),
            base,
            segments,
            samples: Vec::new(),
        });
    }
    modules
}

/// The mappings of a file, by address.
#[derive(Default)]
struct Mapped<'m> {
    all: Vec<&'m Mapping>,
    first_pages: Vec<&'m Mapping>,
    /// Those of its first pages whose headers were read.
    asked: FxHashSet<u64>,
    /// Where it can be read now.
    file: Option<PathBuf>,
}

impl<'m> Mapped<'m> {
    /// The mapping of the file's first page to which the one at `start` belongs: the closest
    /// before.
    fn first_page(&self, start: u64) -> Option<&'m Mapping> {
        let after = self.first_pages.partition_point(|m| m.start <= start);
        self.first_pages[..after].last().copied()
    }

    fn between(&self, low: u64, high: u64) -> impl Iterator<Item = &'m Mapping> + '_ {
        let from = self.all.partition_point(|m| m.start < low);
        let own = self.all[from..].iter().copied();
        own.take_while(move |m| m.start < high)
    }
}

/// The file as the process sees it: in its own root, or by its mapping where that is deleted, is
/// another one now, or may not be read by the process. Where we see the same one, by its own path:
/// it outlives the process, and others have it too.
fn readable_file(root: &Path, mapping: &Mapping) -> PathBuf {
    let plain = PathBuf::from(&mapping.path);
    if !plain.has_root() {
        return plain;
    }
    let range = format!("{:x}-{:x}", mapping.start, mapping.end);
    let mapped = root.join("map_files").join(range);
    // /proc writes the end of a line as \012, and what is no UTF-8 became U+FFFD.
    let is_changed = mapping.path.contains([char::REPLACEMENT_CHARACTER, '\\']);
    if is_changed || mapping.path.ends_with(" (deleted)") {
        return mapped;
    }
    let inside = root.join("root").join(mapping.path.trim_start_matches('/'));
    let which = |path: &Path| facts_of(path).map(|file| (file.device, file.inode));
    match which(&inside) {
        // Whoever opens it is told so.
        Err(error) if error.kind() == ErrorKind::TimedOut => inside,
        Ok(theirs) if theirs.1 == mapping.inode => match which(&plain) {
            Ok(ours) if ours == theirs => plain,
            _ if open_named(&inside).is_ok() => inside,
            _ => mapped,
        },
        _ => mapped,
    }
}

/// What the ELF headers in memory say.
struct Headers {
    /// Virtual address of the page that the first mapping holds.
    first_page: u64,
    /// Virtual address behind the last segment.
    end: u64,
    build_id: Vec<u8>,
}

impl Headers {
    fn read(memory: &dyn AddressSpace, start: u64) -> Option<Headers> {
        let mut page = [0; PAGE as usize];
        if memory.read(start, &mut page) < page.len() {
            return None;
        }
        let header = FileHeader64::<Endianness>::parse(&page[..]).ok()?;
        let endian = header.endian().ok()?;
        let segments = header.program_headers(endian, &page[..]).ok()?;
        let loads = || segments.iter().filter(|s| s.p_type(endian) == PT_LOAD);
        let first = loads().find(|s| s.p_offset(endian) < PAGE)?;
        let first_page = first.p_vaddr(endian) & !(PAGE - 1);
        let ends = loads().map(|s| s.p_vaddr(endian).saturating_add(s.p_memsz(endian)));
        let base = start.wrapping_sub(first_page);
        let notes = segments.iter().filter(|s| s.p_type(endian) == PT_NOTE);
        let build_id = notes
            .filter_map(|s| {
                let size = s.p_filesz(endian).min(PAGE) as usize;
                let mut bytes = vec![0; size];
                let at = base.checked_add(s.p_vaddr(endian))?;
                if memory.read(at, &mut bytes) < bytes.len() {
                    return None;
                }
                gnu_build_id(&bytes, s.p_align(endian))
            })
            .next();
        Some(Headers {
            first_page,
            end: ends.max()?,
            build_id: build_id.unwrap_or_default(),
        })
    }
}

fn gnu_build_id(notes: &[u8], align: u64) -> Option<Vec<u8>> {
    let mut notes = object::read::elf::NoteIterator::<FileHeader64<Endianness>>::new(
        Endianness::Little,
        align,
        notes,
    )
    .ok()?;
    while let Ok(Some(note)) = notes.next() {
        if note.name() == object::elf::ELF_NOTE_GNU
            && note.n_type(Endianness::Little) == object::elf::NT_GNU_BUILD_ID
        {
            return Some(note.desc().to_vec());
        }
    }
    None
}

/// The build-id of the ELF file whose first page lies at `start`, as its memory says.
pub fn build_id_in_memory(memory: &dyn AddressSpace, start: u64) -> Option<Vec<u8>> {
    let id = Headers::read(memory, start)?.build_id;
    (!id.is_empty()).then_some(id)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn mappings_without_number_are_told_soon() {
        struct Nothing;
        impl AddressSpace for Nothing {
            fn read(&self, _: u64, _: &mut [u8]) -> usize {
                0
            }
        }
        let line = |at: u64| {
            format!(
                "{:x}-{:x} r-xp 00001000 00:05 77 /app\n",
                at << 13,
                (at << 13) + 4096
            )
        };
        let maps = Maps::parse(&(1..200_000).map(line).collect::<String>());
        let begin = Instant::now();
        assert!(modules(&maps, &Nothing, |_| PathBuf::new()).is_empty());
        assert!(begin.elapsed() < Duration::from_secs(2));
    }
}
