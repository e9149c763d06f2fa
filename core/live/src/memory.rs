// SPDX-License-Identifier: MIT
//! The memory of another process, and what its files held at the start.

use std::io::ErrorKind;
use std::os::unix::fs::FileExt;

use flagfinder_code::{AddressSpace, Names};
use flagfinder_failure::{Failure, DENIED};
use flagfinder_files::open_named;
use flagfinder_flags::LiveMemory;
use flagfinder_step::{unable, unable_by};
use object::elf::{FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, ReadCache};

use flagfinder_waits::descriptor;

pub use flagfinder_code::ProcessMemory as Memory;

/// Memory with the names of what lies there.
pub struct NamedMemory<'a> {
    /// `None`: the process is dead.
    pub pid: Option<u32>,
    pub memory: &'a dyn AddressSpace,
    pub names: &'a Names,
}

/// Does the process have one thread, and the word for itself?
pub(crate) fn has_one_writer(names: &Names, address: u64) -> bool {
    let input = names.input();
    let mapping = input.maps.iter().rev().find_map(|maps| maps.at(address));
    input.threads.len() == 1 && mapping.is_some_and(|mapping| !mapping.shared)
}

impl LiveMemory for NamedMemory<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        self.memory.read(address, buffer)
    }

    fn is_own_wakeup(&self, descriptor: i32) -> bool {
        self.pid
            .is_some_and(|pid| descriptor::wakes_itself(pid, descriptor))
    }

    fn has_one_writer(&self, address: u64) -> bool {
        has_one_writer(self.names, address)
    }

    fn initial(&self, address: u64, bytes: u32) -> Option<u64> {
        let modules = &self.names.input().modules;
        let module = modules.iter().find(|module| {
            let mut segments = module.segments.iter();
            segments.any(|s| (s.start..s.end).contains(&address))
        })?;
        let offset = address.wrapping_sub(module.base);
        let file = open_named(&module.file).ok()?;
        let content = ReadCache::new(&file);
        let header = FileHeader64::<Endianness>::parse(&content).ok()?;
        let endian = header.endian().ok()?;
        let segments = header.program_headers(endian, &content).ok()?.iter();
        let mut loaded = segments.filter(|s| s.p_type(endian) == PT_LOAD);
        let (segment, at) = loaded.find_map(|segment| {
            let at = offset.checked_sub(segment.p_vaddr(endian))?;
            (at < segment.p_memsz(endian)).then_some((segment, at))
        })?;
        // Beyond the file's part lies .bss: zeroes.
        let mut word = [0u8; 8];
        let in_file = segment.p_filesz(endian).saturating_sub(at).min(8) as usize;
        let wanted = in_file.min(bytes as usize);
        file.read_exact_at(
            &mut word[..wanted],
            segment.p_offset(endian).checked_add(at)?,
        )
        .ok()?;
        Some(u64::from_le_bytes(word))
    }
}

/// Is there one, though /proc shows none? Who may not signal it is told so.
fn is_hidden(pid: u32) -> bool {
    // SAFETY: takes numbers only; signal 0 is none.
    let sent = unsafe { libc::kill(pid as libc::pid_t, 0) };
    sent != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}

/// Why a process's memory can't be read.
pub(crate) fn refused(pid: u32, error: &std::io::Error) -> Failure {
    if error.kind() == ErrorKind::NotFound && is_hidden(pid) {
        let mut failure = unable(
            format!("Process {pid} cannot be looked at"),
            "/proc hides the processes of other users (hidepid)",
            "Run it as the user of that process, or as root (sudo)",
        );
        failure.exit_code = DENIED;
        return failure;
    }
    if error.kind() == ErrorKind::NotFound {
        return Failure::unavailable(
            format!("There is no process {pid}"),
            "It may have ended",
            "`ps -e` lists the processes.",
            "Nothing was started or changed.",
        );
    }
    unable_by(format!("Process {pid} cannot be looked at"), error)
}
