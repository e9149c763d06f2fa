// SPDX-License-Identifier: MIT
//! Writes the core file of a living process, as the kernel would: all threads stand still
//! meanwhile, and go on.
//!
//! In: a process id and a file. Out: an ELF core that [`CoreFile`](crate::CoreFile) and debuggers
//! read, and the threads that it lacks. What of the memory goes into it is told by the process's
//! own /proc/PID/coredump_filter (core(5)). Blind spot: a thread in an uninterruptible call does
//! not stop, so it is left out.

use std::fs::{self, File};
use std::io::{Error, ErrorKind, Seek, SeekFrom, Write};
use std::time::Duration;

use flagfinder_code::ProcessMemory;
use flagfinder_failure::Failure;
use flagfinder_linux::arguments::arguments;
use flagfinder_linux::pagemap::Pagemap;
use flagfinder_linux::proc::{self, Stat, Status};
use flagfinder_step::{unable_by, Tracee};
use object::elf::{self, FileHeader64, NoteHeader64, ProgramHeader64};
use object::pod::bytes_of;
use object::{LittleEndian, U16, U32, U64};

use crate::child::extended;
use crate::core_layout::{self as layout, Named};
use crate::live::identity;
use crate::source::{Identity, PAGE};
use crate::stretches::{stretches, Stretch};

type Result<T> = std::result::Result<T, Failure>;

/// How long a thread may take to stop.
const PATIENCE: Duration = Duration::from_secs(2);
/// More rounds than any process needs whose threads start others while they are stopped.
const MOST_ROUNDS: usize = 100;
/// Bytes that are copied at once.
const BLOCK: usize = 1 << 20;

/// One thread that stands still.
struct Held {
    _tracee: Tracee,
    registers: libc::user_regs_struct,
    extended: Vec<u8>,
    identity: Identity,
    signals: [u64; 2],
}

/// Writes the core file of process `pid`; returns what could not be put into it, in words.
///
/// # Errors
/// Four parts: the process is gone, may not be traced, has another debugger, or the file can't be
/// written.
pub fn write_core(pid: u32, file: &mut File) -> Result<Vec<String>> {
    let failed = |e: Error| unable_by(format!("No core of process {pid} is written"), &e);
    let mut notes = Vec::new();
    let (held, named) = hold(pid, &mut notes)?;
    let memory = ProcessMemory::open(pid).map_err(failed)?;
    let pagemap = Pagemap::open(pid).map_err(failed)?;
    let stretches = stretches(pid).map_err(failed)?;
    let noted = noted(pid, &held, &named, &stretches).map_err(failed)?;
    let mut from = Process {
        memory,
        pagemap,
        left_out: LeftOut::default(),
    };
    from.write(file, &stretches, &noted).map_err(failed)?;
    notes.extend(from.left_out.told());
    Ok(notes)
}

/// Stops all threads, those that the process starts meanwhile too.
fn hold(pid: u32, notes: &mut Vec<String>) -> Result<(Vec<Held>, Vec<Named>)> {
    let gone = |e: Error| unable_by(format!("Process {pid} is gone"), &e);
    let mut held: Vec<Held> = Vec::new();
    let mut named: Vec<Named> = Vec::new();
    let mut asked: Vec<u32> = Vec::new();
    let mut failure = None;
    for _ in 0..MOST_ROUNDS {
        let mut new = proc::threads(pid).map_err(gone)?;
        new.retain(|tid| !asked.contains(tid));
        if new.is_empty() {
            break;
        }
        for tid in new {
            asked.push(tid);
            match thread(pid, tid) {
                Ok(thread) => {
                    named.push(name(pid, tid, thread.identity.tid, false));
                    held.push(thread);
                }
                Err(error) if is_there(pid, tid) => {
                    let own = identity(pid, tid).map_or(tid, |identity| identity.tid);
                    named.push(name(pid, tid, own, true));
                    notes.push(format!("thread {tid} is not in the core: {}", error.found));
                    failure = Some(error);
                }
                Err(error) => failure = Some(error),
            }
        }
    }
    match (held.is_empty(), failure) {
        (true, Some(error)) => Err(error),
        (true, None) => Err(gone(Error::from(ErrorKind::NotFound))),
        _ => Ok((held, named)),
    }
}

/// `own`: its id as the process itself sees it.
fn name(pid: u32, tid: u32, own: u32, is_left_out: bool) -> Named {
    Named {
        tid: own,
        is_left_out,
        name: proc::name(pid, tid).unwrap_or_default(),
    }
}

/// The thread has not ended.
fn is_there(pid: u32, tid: u32) -> bool {
    Stat::of_thread(pid, tid).is_some_and(|stat| stat.lives())
}

fn thread(pid: u32, tid: u32) -> Result<Held> {
    let failed = |e: Error| unable_by(format!("Thread {tid} of process {pid}"), &e);
    let identity = identity(pid, tid).map_err(failed)?;
    let (tracee, registers) = Tracee::hold(tid as i32, PATIENCE)?;
    let status = Status::of_thread(pid, tid).map_err(failed)?;
    Ok(Held {
        extended: extended(tid as i32).map_err(failed)?,
        signals: ["SigPnd:", "SigBlk:"].map(|field| status.mask(field)),
        _tracee: tracee,
        registers,
        identity,
    })
}

/// The content of PT_NOTE, in the kernel's order.
fn noted(
    pid: u32,
    held: &[Held],
    named: &[Named],
    stretches: &[Stretch],
) -> std::io::Result<Vec<u8>> {
    let mut noted = Vec::new();
    let first = &held[0].identity;
    for (number, thread) in held.iter().enumerate() {
        let status = layout::status(&thread.registers, &thread.identity, thread.signals);
        note(&mut noted, b"CORE", elf::NT_PRSTATUS, &status);
        if number == 0 {
            let program = fs::read_link(proc::path(pid, "exe")).unwrap_or_default();
            let words = arguments(pid).unwrap_or_default();
            let info = layout::process(first, &program, &words);
            note(&mut noted, b"CORE", elf::NT_PRPSINFO, &info);
            let auxiliary = fs::read(proc::path(pid, "auxv"))?;
            note(&mut noted, b"CORE", elf::NT_AUXV, &auxiliary);
            note(&mut noted, b"CORE", elf::NT_FILE, &layout::files(stretches));
        }
        // The state begins as FXSAVE writes it, which is this note.
        if let Some(floating) = thread.extended.get(..size_of::<libc::user_fpregs_struct>()) {
            note(&mut noted, b"CORE", elf::NT_PRFPREG, floating);
            note(&mut noted, b"LINUX", elf::NT_X86_XSTATE, &thread.extended);
        }
    }
    note(
        &mut noted,
        layout::OWN,
        layout::OWN_THREADS,
        &layout::names(named),
    );
    Ok(noted)
}

const ALIGN: usize = 4;

fn note(into: &mut Vec<u8>, owner: &[u8], kind: u32, content: &[u8]) {
    let number = |number: usize| U32::new(LittleEndian, number as u32);
    let header = NoteHeader64 {
        n_namesz: number(owner.len() + 1),
        n_descsz: number(content.len()),
        n_type: U32::new(LittleEndian, kind),
    };
    into.extend(bytes_of(&header));
    into.extend(owner);
    into.push(0);
    into.resize(into.len().next_multiple_of(ALIGN), 0);
    into.extend(content);
    into.resize(into.len().next_multiple_of(ALIGN), 0);
}

struct Process {
    memory: ProcessMemory,
    pagemap: Pagemap,
    left_out: LeftOut,
}

/// Memory whose content nobody could tell without waiting: it is a hole in the core.
#[derive(Default)]
struct LeftOut {
    pages: u64,
    /// From the first to the last, of each mapping.
    ranges: Vec<(u64, u64)>,
}

impl LeftOut {
    fn add(&mut self, stretch: &Stretch, from: u64, to: u64) {
        self.pages += (to - from) / PAGE;
        match self.ranges.last_mut() {
            Some(last) if last.0 >= stretch.start && last.1 <= stretch.end => last.1 = to,
            _ => self.ranges.push((from, to)),
        }
    }

    fn told(&self) -> Option<String> {
        const SHOWN: usize = 4;
        let (pages, more) = (self.pages, self.ranges.len().saturating_sub(SHOWN));
        let shown = self.ranges.iter().take(SHOWN);
        let mut shown: Vec<String> = shown.map(|(a, b)| format!("{a:#x}-{b:#x}")).collect();
        if more > 0 {
            shown.push(format!("{more} more"));
        }
        let ranges = shown.join(", ");
        (pages > 0).then(|| {
            format!(
                "{pages} pages are not in the core, as the process does not have them, and to ask \
                 for them may take for ever: at {ranges}"
            )
        })
    }
}

impl Process {
    fn write(
        &mut self,
        file: &mut File,
        stretches: &[Stretch],
        noted: &[u8],
    ) -> std::io::Result<()> {
        let count = stretches.len() + 1;
        let headers = size_of::<FileHeader64<LittleEndian>>()
            + count * size_of::<ProgramHeader64<LittleEndian>>();
        let file_header = header(count).ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, format!("it has {count} mappings"))
        })?;
        file.write_all(bytes_of(&file_header))?;
        let at = headers as u64;
        let notes = segment(
            elf::PT_NOTE,
            0,
            [0, 0],
            [at, noted.len() as u64],
            ALIGN as u64,
        );
        file.write_all(bytes_of(&notes))?;
        let mut at = (at + noted.len() as u64).next_multiple_of(PAGE);
        let first = at;
        for stretch in stretches {
            let (place, size) = (stretch.start, stretch.end - stretch.start);
            let held = stretch.kept;
            let load = segment(elf::PT_LOAD, stretch.flags, [place, size], [at, held], PAGE);
            file.write_all(bytes_of(&load))?;
            at += held;
        }
        file.write_all(noted)?;
        let mut at = first;
        for stretch in stretches {
            self.copy(stretch, file, at)?;
            at += stretch.kept;
        }
        // Pages that nobody has touched are a hole.
        file.set_len(at)
    }

    /// Pages that the process has, and what is known of the others. What is zero is left a hole,
    /// and so is what lies beyond the end of a file that was cut, as the kernel writes it.
    fn copy(&mut self, stretch: &Stretch, file: &mut File, at: u64) -> std::io::Result<()> {
        let mut block = vec![0; BLOCK];
        let kept_end = stretch.start + stretch.kept;
        let mut address = stretch.start;
        while address < kept_end {
            let end = kept_end.min(address + BLOCK as u64);
            let mut next = address;
            let there = self.pagemap.there(address, end)?;
            for (from, to) in there.into_iter().chain([(end, end)]) {
                self.absent(stretch, (next, from), &mut block, file, at)?;
                let part = &mut block[..(to - from) as usize];
                self.read(from, part);
                file.seek(SeekFrom::Start(at + from - stretch.start))?;
                file.write_all(part)?;
                next = to;
            }
            address = end;
        }
        Ok(())
    }

    /// Of anonymous memory the process lacks only pages that are zero, and those of a handler.
    fn absent(
        &mut self,
        stretch: &Stretch,
        (from, to): (u64, u64),
        block: &mut [u8],
        file: &mut File,
        at: u64,
    ) -> std::io::Result<()> {
        if from == to {
            return Ok(());
        }
        if self.memory.withholds(from) {
            self.left_out.add(stretch, from, to);
            return Ok(());
        }
        if stretch.is_anonymous {
            return Ok(());
        }
        let part = &mut block[..(to - from) as usize];
        self.read(from, part);
        for (page, place) in part
            .chunks(PAGE as usize)
            .zip((from..).step_by(PAGE as usize))
        {
            if page.iter().any(|byte| *byte != 0) {
                file.seek(SeekFrom::Start(at + place - stretch.start))?;
                file.write_all(page)?;
            }
        }
        Ok(())
    }

    fn read(&self, address: u64, block: &mut [u8]) {
        let mut done = self.memory.read_held(address, block);
        while done < block.len() {
            let page_end = (done + 1).next_multiple_of(PAGE as usize);
            block[done..page_end].fill(0);
            done = page_end;
            done += self
                .memory
                .read_held(address + done as u64, &mut block[done..]);
        }
    }
}

/// `None`: more program headers than its field counts.
fn header(count: usize) -> Option<FileHeader64<LittleEndian>> {
    let e = LittleEndian;
    let count = u16::try_from(count)
        .ok()
        .filter(|count| *count < elf::PN_XNUM)?;
    Some(FileHeader64 {
        e_ident: elf::Ident {
            magic: elf::ELFMAG,
            class: elf::ELFCLASS64,
            data: elf::ELFDATA2LSB,
            version: elf::EV_CURRENT,
            os_abi: elf::ELFOSABI_NONE,
            abi_version: 0,
            padding: [0; 7],
        },
        e_type: U16::new(e, elf::ET_CORE),
        e_machine: U16::new(e, elf::EM_X86_64),
        e_version: U32::new(e, elf::EV_CURRENT.into()),
        e_entry: U64::new(e, 0),
        e_phoff: U64::new(e, size_of::<FileHeader64<LittleEndian>>() as u64),
        e_shoff: U64::new(e, 0),
        e_flags: U32::new(e, 0),
        e_ehsize: U16::new(e, size_of::<FileHeader64<LittleEndian>>() as u16),
        e_phentsize: U16::new(e, size_of::<ProgramHeader64<LittleEndian>>() as u16),
        e_phnum: U16::new(e, count),
        e_shentsize: U16::new(e, 0),
        e_shnum: U16::new(e, 0),
        e_shstrndx: U16::new(e, 0),
    })
}

/// Address and size in memory, offset and size in the file.
fn segment(
    kind: u32,
    flags: u32,
    [address, size]: [u64; 2],
    [offset, held]: [u64; 2],
    align: u64,
) -> ProgramHeader64<LittleEndian> {
    let e = LittleEndian;
    ProgramHeader64 {
        p_type: U32::new(e, kind),
        p_flags: U32::new(e, flags),
        p_offset: U64::new(e, offset),
        p_vaddr: U64::new(e, address),
        p_paddr: U64::new(e, 0),
        p_filesz: U64::new(e, held),
        p_memsz: U64::new(e, size),
        p_align: U64::new(e, align),
    }
}
