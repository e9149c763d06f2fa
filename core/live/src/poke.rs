// SPDX-License-Identifier: MIT
//! Writing a value into the live process: the experiment that proves a diagnosis.

use std::io::Error;
use std::ptr::without_provenance_mut;

use flagfinder_code::{AddressSpace, NamesInput};
use flagfinder_failure::Failure;
use flagfinder_linux::proc::stand_in;
use flagfinder_step::{unable, unable_by};

use crate::memory::Memory;
use crate::spin::{check, started};

/// What was there, and what was read back; `None`: the process has ended since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poked {
    /// The value before, of as many bytes as were written.
    pub before: u64,
    /// What was read back.
    pub after: Option<u64>,
}

/// Run-time address of `module` (file name or path) + `offset` in the process.
///
/// # Errors
/// When the process is gone, may not be looked at, or has no such module.
pub fn resolve(pid: u32, module: &str, offset: u64) -> Result<u64, Failure> {
    check(pid)?;
    let input = NamesInput::from_live(pid)
        .map_err(|e| unable_by(format!("Process {pid} cannot be looked at"), &e))?;
    let mut modules = input.modules.iter();
    let found = modules.find(|m| m.is_called(module));
    found.map(|m| m.base.wrapping_add(offset)).ok_or_else(|| {
        unable(
            format!("The flag is not in process {pid}"),
            format!("It has not loaded {module}"),
            "Name the flag by --address and --size, or run `flagfinder spin` on this process",
        )
    })
}

/// Writes `value` in one copy of `size` (1, 2, 4 or 8) bytes; the address must be a
/// multiple of the size, so that no reader sees half of it. `start`: the start time
/// (`SpinReport::started`) of the process that is meant.
///
/// # Errors
/// When the place is not fit for it, or the system refuses.
pub fn poke(pid: u32, start: u64, address: u64, size: usize, value: u64) -> Result<Poked, Failure> {
    check(pid)?;
    if !matches!(size, 1 | 2 | 4 | 8) || address % size as u64 != 0 {
        return Err(unable(
            "Nothing was written",
            format!("{size} bytes at {address:#x} cannot be written at once"),
            "The size must be 1, 2, 4 or 8, and the address a multiple of it",
        ));
    }
    let refused = |e: &Error| unable_by("Nothing was written", e);
    let memory = Memory::open(pid).map_err(|e| refused(&e))?;
    if started(pid) != Some(start) {
        return Err(unable(
            "Nothing was written",
            format!("Process {pid} is another one than was looked at: that one has ended"),
            "Run `flagfinder poke` on the process that spins now",
        ));
    }
    let unreadable = || {
        unable(
            "Nothing was written",
            format!("Process {pid} has no memory at {address:#x}"),
            "Run `flagfinder spin` again: the word may have moved",
        )
    };
    let before = memory.number(address, size).ok_or_else(unreadable)?;
    if memory.may_hold_a_writer(address) {
        return Err(unable(
            "Nothing was written",
            format!("The page at {address:#x} is one that a handler or a server is to fill"),
            "Write from within the program: the write may have to wait for it",
        ));
    }
    let bytes = value.to_le_bytes();
    let local = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: size,
    };
    let remote = libc::iovec {
        iov_base: without_provenance_mut(address as usize),
        iov_len: size,
    };
    let through = stand_in(pid) as i32;
    // SAFETY: the local vector is `bytes`, which the call only reads; the kernel checks the
    // remote one, and that its page may be written by the program itself.
    let written = unsafe { libc::process_vm_writev(through, &local, 1, &remote, 1, 0) };
    if written != size as isize {
        return Err(refused(&Error::last_os_error()));
    }
    let after = memory.number(address, size);
    Ok(Poked { before, after })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn nothing_is_written_to_a_later_process_of_the_same_number() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let start = started(child.id()).unwrap();
        // If nothing is mapped there, the page that is meant is asked for first.
        let refusals = [start, start - 1].map(|meant| poke(child.id(), meant, 0x10, 4, 1));
        child.kill().unwrap();
        child.wait().unwrap();
        let found = refusals.map(|refused| refused.unwrap_err().found);
        assert!(found[0].contains("no memory at"), "{found:?}");
        assert!(found[1].contains("is another one"), "{found:?}");
    }
}
