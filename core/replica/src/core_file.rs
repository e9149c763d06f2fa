// SPDX-License-Identifier: MIT
//! An ELF core file as a source: what the kernel, `gcore` or `coredumpctl dump` leave of a process.
//!
//! Registers come from NT_PRSTATUS and NT_X86_XSTATE, memory from PT_LOAD. What a core leaves out,
//! because a file holds it (code, read-only data), is read from the files that NT_FILE names. A
//! file is believed when its build-id is the one in the dead process's memory. Blind spots:
//! descriptors, other processes and the kernel's state are gone; only cores that we wrote tell
//! names of threads; memory that nobody dumped reads as missing.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{Error, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flagfinder_code::{build_id_in_memory, AddressSpace, Mapping, Maps, NamesInput, ThreadInput};
use flagfinder_failure::{Failure, Result};
use flagfinder_files::{open_as, open_named, open_regular, resolve_within};
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, Object, ReadCache};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::core_notes::{maps, program, CoreThread, MappedFile, Notes};
use crate::descriptors::Descriptors;
use crate::last_call::LastCall;
use crate::live::begin_anew;
use crate::source::{Region, Source, PAGE};
use crate::unpacked::{unpacked, unreadable};

/// The core does not have the thread that was asked for.
fn no_thread(tid: u32, threads: &[String]) -> Failure {
    unreadable(
        format!("The core file has no thread {tid}"),
        format!("Its threads are {}", threads.join(", ")),
        "Name one of them with --thread.",
    )
}

/// Where the files of the process are now.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// The root under which the paths of the core lie; `None`: this machine's.
    pub sysroot: Option<PathBuf>,
    /// The executable, where it lies elsewhere.
    pub program: Option<PathBuf>,
}

/// An opened core file, and the files that it needs.
pub struct CoreFile {
    pid: u32,
    program: String,
    signal: i32,
    loads: Vec<Load>,
    regions: Vec<Region>,
    maps: Maps,
    content: File,
    files: Files,
    threads: Vec<CoreThread>,
    left_out: Vec<u32>,
    /// Whose process it was: user and group.
    user: (u32, u32),
    opened: RefCell<FxHashMap<PathBuf, Option<File>>>,
    /// Where the files of the process lie now, by the path that it had.
    places: RefCell<FxHashMap<String, Option<PathBuf>>>,
    /// How many were asked for.
    asked: Cell<usize>,
    /// Files that were wanted, and why they could not be had.
    missing: RefCell<Vec<(PathBuf, Error)>>,
}

/// PT_LOAD.
#[derive(Clone, Copy, Debug)]
struct Load {
    start: u64,
    end: u64,
    offset: u64,
    /// Bytes that the core holds of it.
    held: u64,
}

/// Larger notes are damaged: those of 60,000 threads with AVX-512 take less. A packed file of a few
/// pages may hold any number of them.
const NOTES_MOST: u64 = 1 << 28;
/// So many segments no process has: vm.max_map_count is a sixteenth unless it is raised.
const SEGMENTS_MOST: usize = 1 << 20;
/// So many files are asked for, one by one. Processes with more mapped ones map data, which a look
/// hardly needs.
const FILES_MOST: usize = 1 << 14;
/// More than any kernel has had so far.
const CLOCK_PAGES: u64 = 16;

impl CoreFile {
    /// Opens a core file, compressed or not, and checks the files that it needs.
    ///
    /// # Errors
    /// No core of x86-64, damaged, or a file of the process that is another one now.
    pub fn open(path: &Path, files: Files) -> Result<CoreFile> {
        let shown = path.display();
        let cannot = |e: std::io::Error| {
            unreadable(
                format!("The core file {shown} can't be read"),
                format!("The system says: {e}"),
                "Check the path; a core of another user needs that user's rights.",
            )
        };
        let file = open_regular(path).map_err(cannot)?;
        let owner = file.metadata().map_err(cannot)?;
        let content = unpacked(file, path)?;
        let no_core = |found: &str| {
            unreadable(
                format!("{shown} is no core file of a 64-bit x86 program"),
                found.trim_end_matches('.'),
                "`gcore PID` or `coredumpctl dump` make one; `file` tells what this one is.",
            )
        };
        let (core, notes) = Self::parse(&content).map_err(|found| no_core(&found))?;
        let mut core = CoreFile {
            content,
            files,
            ..core
        };
        let said = notes.identity;
        // Who may write a core says what he likes in it. `take` opens files already.
        core.user = match owner.uid() {
            0 => (said.user[0], said.group[0]),
            uid => (uid, owner.gid()),
        };
        core.take(notes);
        if core.threads.is_empty() {
            return Err(no_core("It holds no thread's registers."));
        }
        core.check_files()?;
        Ok(core)
    }

    fn parse(content: &File) -> std::result::Result<(CoreFile, Notes), String> {
        let damaged = |e: object::read::Error| format!("{e}.");
        let cache = ReadCache::new(content);
        let header = FileHeader64::<Endianness>::parse(&cache).map_err(damaged)?;
        let endian = header.endian().map_err(damaged)?;
        if header.e_type(endian) != elf::ET_CORE || header.e_machine(endian) != elf::EM_X86_64 {
            return Err("It is another kind of ELF file.".into());
        }
        let mut core = CoreFile {
            pid: 0,
            program: String::new(),
            signal: 0,
            loads: Vec::new(),
            regions: Vec::new(),
            maps: Maps::default(),
            content: File::open("/dev/null").map_err(|e| format!("{e}."))?,
            files: Files::default(),
            threads: Vec::new(),
            left_out: Vec::new(),
            user: (0, 0),
            opened: RefCell::default(),
            places: RefCell::default(),
            asked: Cell::default(),
            missing: RefCell::default(),
        };
        let mut notes = Notes::default();
        let held = content.metadata().map_err(|e| format!("{e}."))?.len();
        let mut notes_may_take = NOTES_MOST.min(held);
        if header.phnum(endian, &cache).map_err(damaged)? > SEGMENTS_MOST {
            return Err("It has more segments than any process has mappings.".into());
        }
        for segment in header.program_headers(endian, &cache).map_err(damaged)? {
            match segment.p_type(endian) {
                elf::PT_LOAD => core.add_load(segment, endian),
                elf::PT_NOTE if segment.p_filesz(endian) <= notes_may_take => {
                    notes_may_take -= segment.p_filesz(endian);
                    let mut bytes = vec![0; segment.p_filesz(endian) as usize];
                    content
                        .read_exact_at(&mut bytes, segment.p_offset(endian))
                        .map_err(|e| format!("Its notes can't be read: {e}."))?;
                    notes.read(&bytes, segment.p_align(endian), endian);
                }
                _ => {}
            }
        }
        core.loads.sort_by_key(|load| load.start);
        core.regions.sort_by_key(|region| region.start);
        Ok((core, notes))
    }

    fn add_load(&mut self, segment: &elf::ProgramHeader64<Endianness>, endian: Endianness) {
        let start = segment.p_vaddr(endian);
        let end = start.checked_add(segment.p_memsz(endian));
        // The kernel's own page at the top of the address space can't be mapped.
        let Some(end) = end.filter(|end| i64::try_from(*end).is_ok() && *end > start) else {
            return;
        };
        let flags = segment.p_flags(endian);
        let right = |flag: u32, right: i32| if flags & flag != 0 { right } else { 0 };
        self.loads.push(Load {
            start,
            end,
            offset: segment.p_offset(endian),
            held: segment.p_filesz(endian).min(end - start),
        });
        self.regions.push(Region {
            start,
            end,
            protection: right(elf::PF_R, libc::PROT_READ)
                | right(elf::PF_W, libc::PROT_WRITE)
                | right(elf::PF_X, libc::PROT_EXEC),
            fresh: false,
            anonymous: false,
        });
    }

    fn take(&mut self, mut notes: Notes) {
        let identity = notes.identity;
        self.pid = identity.pid;
        self.signal = notes.threads.first().map_or(0, |thread| thread.signal);
        let named = notes.named.iter().map(|named| (named.tid, named)).collect();
        self.threads = notes
            .threads
            .into_iter()
            .map(|thread| thread.with(identity, &named))
            .collect();
        let left_out = notes.named.iter().filter(|thread| thread.is_left_out);
        self.left_out = left_out.map(|thread| thread.tid).collect();
        self.program = program(&notes.files, &notes.name);
        notes.files.sort_by_key(|file| file.start);
        // `gcore` leaves out memory that is as in its file.
        let held = |file: &&MappedFile| {
            let above = self.regions.partition_point(|r| r.start <= file.start);
            above > 0 && self.regions[above - 1].holds(file.start)
        };
        let left_out: Vec<Region> = notes
            .files
            .iter()
            .filter(|file| !held(file))
            .map(|file| Region {
                start: file.start,
                end: file.end,
                protection: self.protection_in_file(file),
                fresh: false,
                anonymous: false,
            })
            .collect();
        self.regions.extend(left_out);
        self.regions.sort_by_key(|region| region.start);
        self.add_clock_pages(notes.vdso);
        // A core that does not tell has at least a thread there, mostly.
        let first = self
            .threads
            .first()
            .map(|thread| thread.state.registers.rsp);
        let held = self.loads.iter().filter(|load| load.held > 0);
        let held: FxHashSet<u64> = held.map(|load| load.start).collect();
        self.maps = maps(
            &self.regions,
            &notes.files,
            &self.program,
            notes.vdso,
            notes.on_stack.or(first),
            &|region| !held.contains(&region.start),
        );
        let mut threads = std::mem::take(&mut self.threads);
        threads.iter_mut().for_each(|thread| self.recall(thread));
        self.threads = threads;
    }

    /// What is known of the calls of a thread.
    fn recall(&self, thread: &mut CoreThread) {
        let registers = &mut thread.state.registers;
        if let Some((number, _)) = &mut thread.call {
            begin_anew(self, registers);
            *number = registers.rax as u32;
        }
        let waits = thread
            .call
            .map(|(number, arguments)| (number, arguments, None));
        let has = |(number, arguments, result)| (number, arguments, Some(result));
        let last = waits.or(thread.returned.map(has));
        let last = last.map(|(number, a, result)| Arc::new(LastCall::of(self, number, a, result)));
        thread.state.recalled.last = last;
    }

    /// The kernel dumps no clock pages (vvar), which lie right below the vDSO. Zeroes there make
    /// its functions ask by system calls, which are answered.
    fn add_clock_pages(&mut self, vdso: Option<u64>) {
        let Some(end) = vdso.filter(|at| self.regions.iter().any(|region| region.holds(*at)))
        else {
            return;
        };
        let at = self.regions.partition_point(|region| region.start < end);
        let below = at.checked_sub(1).map_or(0, |below| self.regions[below].end);
        let start = end.saturating_sub(CLOCK_PAGES * PAGE).max(below);
        if start < end {
            let region = Region {
                start,
                end,
                protection: libc::PROT_READ,
                fresh: true,
                anonymous: false,
            };
            self.regions.insert(at, region);
        }
    }

    /// What the ELF file says of the stretch. Where it is not here, it may be code.
    fn protection_in_file(&self, mapped: &MappedFile) -> i32 {
        let file = self.place(&mapped.path).and_then(|path| self.opened(&path));
        let is_here = file.is_some();
        let flags = file.and_then(|file| {
            let cache = ReadCache::new(file);
            let header = FileHeader64::<Endianness>::parse(&cache).ok()?;
            let endian = header.endian().ok()?;
            let segments = header.program_headers(endian, &cache).ok()?.iter();
            let loads = segments.filter(|segment| segment.p_type(endian) == elf::PT_LOAD);
            let first =
                |load: &elf::ProgramHeader64<Endianness>| load.p_offset(endian) & !(PAGE - 1);
            // Neighbours may share a page of the file: it was mapped for the one that begins there.
            let load = loads
                .filter(|load| first(load) <= mapped.offset)
                .max_by_key(|load| first(load))?;
            Some(load.p_flags(endian))
        });
        match flags {
            Some(flags) if flags & elf::PF_X != 0 => libc::PROT_READ | libc::PROT_EXEC,
            Some(_) => libc::PROT_READ,
            // Data that processes share by a file.
            None if is_here => libc::PROT_READ | libc::PROT_WRITE,
            None => libc::PROT_READ | libc::PROT_EXEC,
        }
    }

    /// A file that is mapped and that is another one today would give wrong code and wrong names.
    fn check_files(&self) -> Result<()> {
        let first_pages = self
            .maps
            .all()
            .iter()
            .filter(|m| m.inode != 0 && m.file_offset == 0 && self.holds(m.start));
        for mapping in first_pages {
            let (Some(recorded), Some(path)) = (
                build_id_in_memory(self, mapping.start),
                self.place(mapping.file()),
            ) else {
                continue;
            };
            let Some(file) = self.opened(&path) else {
                continue;
            };
            let found = ReadCache::new(file);
            let found = object::File::parse(&found);
            let found = found.ok().and_then(|f| Some(f.build_id().ok()??.to_vec()));
            if found.as_deref() != Some(&recorded[..]) {
                return Err(unreadable(
                    format!(
                        "{} is not the file that the process had mapped",
                        path.display()
                    ),
                    format!(
                        "Its build-id is {}, in the core it is {}",
                        found.map_or("missing".into(), |id| hex(&id)),
                        hex(&recorded)
                    ),
                    "Give the right files with --sysroot DIR, or the right executable with \
                     --program EXE.",
                ));
            }
        }
        Ok(())
    }

    /// Is the byte in the core, and not in a file that was mapped there?
    fn holds(&self, address: u64) -> bool {
        let load = self.load(address);
        load.is_some_and(|load| address - load.start < load.held)
    }

    fn load(&self, address: u64) -> Option<&Load> {
        let after = self.loads.partition_point(|load| load.start <= address);
        self.loads[..after].last().filter(|l| address < l.end)
    }

    /// Where the file with this path lies now; `None`: it is not here. No link leads out of the
    /// root that was given.
    pub fn place(&self, path: &str) -> Option<PathBuf> {
        match (&self.files.program, &self.files.sysroot) {
            (Some(program), _) if path == self.program => Some(program.clone()),
            (_, Some(root)) => self.place_within(root, path),
            _ => path.starts_with('/').then(|| PathBuf::from(path)),
        }
    }

    fn place_within(&self, root: &Path, path: &str) -> Option<PathBuf> {
        if let Some(known) = self.places.borrow().get(path) {
            return known.clone();
        }
        self.may_ask().then_some(())?;
        let found = resolve_within(root, Path::new(path));
        let wanted = || root.join(path.trim_start_matches('/'));
        let found = found.map_err(|error| self.misses(wanted(), error)).ok();
        let mut places = self.places.borrow_mut();
        places.insert(path.to_owned(), found.clone());
        found
    }

    fn opened(&self, path: &Path) -> Option<File> {
        let mut opened = self.opened.borrow_mut();
        if !opened.contains_key(path) {
            self.may_ask().then_some(())?;
            let file = self.open_file(path);
            let file = file.map_err(|error| self.misses(path.to_owned(), error));
            opened.insert(path.to_owned(), file.ok());
        }
        opened.get(path)?.as_ref()?.try_clone().ok()
    }

    /// Root may read what the process might not, and a core can name any file: of this machine's
    /// only those are opened for it that its user may read, as the core's owner or its notes tell.
    ///
    /// # Errors
    /// The system's; the file is no file that reading leaves as it is.
    pub fn open_file(&self, place: &Path) -> std::io::Result<File> {
        let is_given = self.files.sysroot.is_some() || self.files.program.as_deref() == Some(place);
        // SAFETY: no arguments, cannot fail.
        match is_given || unsafe { libc::geteuid() } != 0 {
            true => open_named(place),
            false => open_as(place, self.user),
        }
    }

    fn may_ask(&self) -> bool {
        self.asked.set(self.asked.get() + 1);
        self.asked.get() <= FILES_MOST
    }

    /// The number of files beyond which none was asked for, if there are more.
    pub fn asked_only(&self) -> Option<usize> {
        (self.asked.get() > FILES_MOST).then_some(FILES_MOST)
    }

    fn misses(&self, path: PathBuf, error: Error) {
        self.missing.borrow_mut().push((path, error));
    }

    /// Files of the process that can't be had, and why: their code and read-only data are unknown.
    pub fn missing(&self) -> Vec<(PathBuf, String)> {
        let missing = self.missing.borrow();
        let told = |(path, error): &(PathBuf, Error)| match error.kind() {
            ErrorKind::NotFound => (path.clone(), "is not here".to_owned()),
            _ => (path.clone(), format!("is not read, as {error}")),
        };
        missing.iter().map(told).collect()
    }

    /// As /proc/PID/maps would list them.
    pub fn mappings(&self) -> &[Mapping] {
        self.maps.all()
    }

    /// Of the dead process, as the core tells it.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Path of the executable.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// The signal that ended the process; 0: none, a tool made the core.
    pub fn signal(&self) -> i32 {
        self.signal
    }

    /// In the order of the core, which begins with the one that got the signal.
    pub fn threads(&self) -> &[CoreThread] {
        &self.threads
    }

    /// Threads that did not stop while the core was written.
    pub fn left_out(&self) -> &[u32] {
        &self.left_out
    }

    /// The thread of that id.
    ///
    /// # Errors
    /// Four parts: the core has no such thread.
    pub fn thread(&self, tid: u32) -> Result<&CoreThread> {
        let found = self.threads.iter().find(|thread| thread.tid == tid);
        found.ok_or_else(|| {
            let all: Vec<String> = self.threads.iter().map(|t| t.tid.to_string()).collect();
            no_thread(tid, &all)
        })
    }

    /// What naming needs.
    pub fn names_input(&self) -> NamesInput {
        let threads = self.threads.iter().map(|thread| ThreadInput {
            tid: thread.tid,
            own_id: thread.tid,
            fs_base: Some(thread.state.registers.fs_base),
            stack_pointer: Some(thread.state.registers.rsp),
            ..ThreadInput::default()
        });
        let file = |mapping: &Mapping| self.place(mapping.file()).unwrap_or_default();
        let threads = threads.collect();
        NamesInput::from_memory(self.maps.clone(), threads, self, &self.program, file)
    }

    /// What the core holds of a stretch; then what the mapped file holds.
    fn read_some(&self, address: u64, buffer: &mut [u8]) -> usize {
        let Some(load) = self.load(address) else {
            return self.read_file(address, buffer);
        };
        let into = address - load.start;
        let wanted = buffer.len().min((load.end - address) as usize);
        if into < load.held {
            let wanted = wanted.min((load.held - into) as usize);
            let at = load.offset.saturating_add(into);
            return self.content.read_at(&mut buffer[..wanted], at).unwrap_or(0);
        }
        self.read_file(address, &mut buffer[..wanted])
    }

    fn read_file(&self, address: u64, buffer: &mut [u8]) -> usize {
        let mapping = self
            .maps
            .at(address)
            .filter(|m| m.inode != 0 && (!m.writable || m.shared));
        let Some(mapping) = mapping else { return 0 };
        let file = self
            .place(mapping.file())
            .and_then(|path| self.opened(&path));
        let at = mapping.file_offset + (address - mapping.start);
        let wanted = buffer.len().min((mapping.end - address) as usize);
        let Some(file) = file else { return 0 };
        let read = file.read_at(&mut buffer[..wanted], at).unwrap_or(0);
        // The last page of a file ends in zeroes.
        let page_end = wanted.min(read.next_multiple_of(PAGE as usize));
        buffer[read..page_end].fill(0);
        page_end
    }
}

impl AddressSpace for CoreFile {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let mut read = 0;
        while read < buffer.len() {
            let Some(at) = address.checked_add(read as u64) else {
                break;
            };
            match self.read_some(at, &mut buffer[read..]) {
                0 => break,
                more => read += more,
            }
        }
        read
    }
}

impl Source for CoreFile {
    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn read_page(&self, address: u64, page: &mut [u8; PAGE as usize]) -> bool {
        AddressSpace::read(self, address, page) == page.len()
    }

    fn descriptors(&self) -> Option<&Descriptors> {
        None
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_no_cores() {
        let own = std::env::current_exe().expect("a path");
        let error = CoreFile::open(&own, Files::default())
            .err()
            .expect("refused");
        assert!(error.what.contains("no core file"), "{error}");
        assert!(CoreFile::open(Path::new("/dev/zero"), Files::default()).is_err());
    }

    /// A file with holes, of this many segments that are all zero.
    fn refused(segments: usize) -> String {
        const HEADER: usize = 64;
        let size = size_of::<elf::ProgramHeader64<Endianness>>();
        let mut head = vec![0; 2 * HEADER];
        head[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        let mut put =
            |at: usize, value: u16| head[at..at + 2].copy_from_slice(&value.to_le_bytes());
        put(16, elf::ET_CORE);
        put(18, elf::EM_X86_64);
        put(20, 1);
        put(32, 2 * HEADER as u16);
        put(40, HEADER as u16);
        put(52, HEADER as u16);
        put(54, size as u16);
        // So many segments that a section's header has their number.
        put(56, elf::PN_XNUM);
        put(58, HEADER as u16);
        put(60, 1);
        head[HEADER + 44..HEADER + 48].copy_from_slice(&(segments as u32).to_le_bytes());
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().write_all_at(&head, 0).expect("written");
        let length = head.len() + segments * size;
        file.as_file().set_len(length as u64).expect("a hole");
        let error = CoreFile::open(file.path(), Files::default()).err();
        error.expect("refused").found
    }

    #[test]
    fn more_segments_than_a_process_has_are_not_read() {
        assert!(refused(SEGMENTS_MOST).contains("no thread"));
        assert!(refused(SEGMENTS_MOST + 1).contains("more segments"));
    }
}
