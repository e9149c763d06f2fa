// SPDX-License-Identifier: MIT
//! A live process as a source.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{Error, ErrorKind};
use std::time::Duration;

use flagfinder_code::{AddressSpace, Found, Mapping, Maps, ProcessMemory};
use flagfinder_failure::Failure;
use flagfinder_linux::proc::{self, Status};
use flagfinder_step::{unable_by, Pause};

use crate::child::extended;
use crate::descriptors::Descriptors;
use crate::last_call::Recalled;
use crate::source::{Identity, Page, Region, Source, ThreadState, PAGE};

/// Pages of the stack that are read while the thread stands still: the frames that it returns to
/// soon.
const STACK_PAGES: u64 = 16;
/// Bytes below the stack pointer that code may use (System V ABI, 3.2.2).
const RED_ZONE: u64 = 128;

/// Bytes in front of a system call in which its number is looked for.
const BEFORE_CALL: usize = 16;

/// When a thread is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// At once, whatever it does.
    Now,
    /// When another thread has woken it from a wait for a futex's word, one with a time limit where
    /// `timed`; where that does not come within `patience`, at its end.
    Woken {
        /// How long to wait for the wake.
        patience: Duration,
        /// The wait has a time limit.
        timed: bool,
    },
}

/// Pages that a copy should have as they were when its thread stood still.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Read while it stands still: those that change.
    pub held: BTreeSet<u64>,
    /// Read before and afterwards; one counts if it is the same both times.
    pub around: BTreeSet<u64>,
}

/// What was read of a thread, and for how long it stood still in all.
pub struct Captured {
    pub state: ThreadState,
    pub pause: Duration,
    /// Pages that changed around the stop, so that none of them is known.
    pub changed: Vec<u64>,
}

/// A live process, with its address space as it was when this was opened.
pub struct Live {
    pid: u32,
    memory: ProcessMemory,
    /// Pages that were asked for, and that can't be read without giving the process pages.
    unread: RefCell<BTreeSet<u64>>,
    regions: Vec<Region>,
    /// Where the kernel's own code for programs lies.
    vdso: Option<Region>,
    descriptors: Option<Descriptors>,
}

impl Live {
    /// Reads the address space; nothing is stopped.
    ///
    /// # Errors
    /// Four parts: the process is gone, or may not be read.
    pub fn open(pid: u32) -> Result<Live, Failure> {
        let refused = |e: Error| unable_by(format!("Process {pid} can't be copied"), &e);
        let memory = ProcessMemory::open(pid).map_err(refused)?;
        let maps = proc::text_of(pid, "maps").map_err(refused)?;
        let maps = Maps::parse(&maps);
        let vdso = maps.all().iter().find(|mapping| mapping.path == "[vdso]");
        Ok(Live {
            pid,
            memory,
            unread: RefCell::default(),
            regions: maps.all().iter().filter_map(region).collect(),
            vdso: vdso.and_then(region),
            descriptors: Descriptors::open(pid).ok(),
        })
    }

    /// Is it the kernel's own code for programs, which asks clocks that a copy can't read?
    pub fn is_vdso(&self, address: u64) -> bool {
        self.vdso.is_some_and(|region| region.holds(address))
    }

    /// Its memory as it is now; false where it can't be read.
    pub(crate) fn bytes(&self, address: u64, buffer: &mut [u8]) -> bool {
        self.memory.read(address, buffer) == buffer.len()
    }

    /// The registers and the top of the stack of one thread, and for how long it stood still.
    ///
    /// # Errors
    /// Four parts: the thread is gone, may not be traced, or does not stop within `patience`.
    pub fn capture(
        &self,
        tid: u32,
        patience: Duration,
    ) -> Result<(ThreadState, Duration), Failure> {
        self.capture_with(tid, patience, Moment::Now, &Wanted::default())
            .map(|captured| (captured.state, captured.pause))
    }

    /// The same with more pages, as they are at that moment too.
    ///
    /// # Errors
    /// As [`Self::capture`].
    pub fn capture_with(
        &self,
        tid: u32,
        patience: Duration,
        moment: Moment,
        wanted: &Wanted,
    ) -> Result<Captured, Failure> {
        let identity = identity(self.pid, tid)
            .map_err(|e| unable_by(format!("Thread {tid} of process {} is gone", self.pid), &e))?;
        // Everything that can be done before is done before the thread stands still.
        let mut addresses: Vec<u64> = wanted.held.iter().copied().collect();
        let mut contents = blank(addresses.len() + STACK_PAGES as usize);
        let around: Vec<u64> = wanted.around.difference(&wanted.held).copied().collect();
        let (mut before, mut after) = (blank(around.len()), blank(around.len()));
        let was_read = self.memory.read_there(tid, &around, &mut before);
        let mut pause = Pause::of(tid, patience)?;
        if let Moment::Woken { patience, timed } = moment {
            pause.until_woken(patience, timed)?;
        }
        let mut registers = pause.tracee().registers_before_call()?;
        let extended = extended(tid as i32);
        let stack = self.stack(registers.rsp);
        addresses.extend(stack.filter(|page| !wanted.held.contains(page)));
        let found = self.memory.read_there(tid, &addresses, &mut contents);
        let pause = pause.end();
        let is_read = self.memory.read_there(tid, &around, &mut after);
        begin_anew(&self.memory, &mut registers);
        let extended =
            extended.map_err(|e| unable_by(format!("Vector registers of thread {tid}"), &e))?;
        // A page that the process did not have held zeroes then; by now it may hold more.
        let is_known = |page: u64, found: Found| match found {
            Found::Read => true,
            Found::Absent => self.memory.begins_as_zeroes(page),
            Found::Unreadable => false,
        };
        let read = addresses.into_iter().zip(contents).zip(found);
        let mut stack: Vec<(u64, Page)> = read
            .filter_map(|(page, found)| is_known(page.0, found).then_some(page))
            .collect();
        let mut changed = Vec::new();
        let both = was_read.into_iter().zip(is_read);
        let both = both.map(|both| both == (Found::Read, Found::Read));
        for (((address, before), after), whole) in
            around.into_iter().zip(before).zip(after).zip(both)
        {
            match whole {
                true if before == after => stack.push((address, after)),
                true => changed.push(address),
                false => {}
            }
        }
        let state = ThreadState {
            registers,
            extended,
            stack,
            identity,
            recalled: Recalled::default(),
        };
        Ok(Captured {
            state,
            pause,
            changed,
        })
    }

    fn stack(&self, pointer: u64) -> impl Iterator<Item = u64> {
        let mut regions = self.regions.iter();
        let stack = regions.find(|region| region.holds(pointer)).map(|region| {
            let first = (pointer.saturating_sub(RED_ZONE) & !(PAGE - 1)).max(region.start);
            (first..region.end.min(first + STACK_PAGES * PAGE)).step_by(PAGE as usize)
        });
        stack.into_iter().flatten()
    }
}

fn blank(pages: usize) -> Vec<Page> {
    (0..pages).map(|_| Box::new([0; PAGE as usize])).collect()
}

impl Source for Live {
    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn read_page(&self, address: u64, page: &mut [u8; PAGE as usize]) -> bool {
        let is_read = self.memory.read(address, page) == page.len();
        if !is_read && self.memory.withholds(address) {
            self.unread.borrow_mut().insert(address);
        }
        is_read
    }

    fn withholds(&self, page: u64) -> bool {
        self.unread.borrow().contains(&page)
    }

    fn descriptors(&self) -> Option<&Descriptors> {
        self.descriptors.as_ref()
    }
}

/// A call with a time limit that was interrupted before goes on as `restart_syscall`, of which
/// only the kernel knows what it is. The copy makes the call itself: in front of the instruction is
/// `mov eax, NUMBER`.
pub(crate) fn begin_anew(memory: &dyn AddressSpace, registers: &mut libc::user_regs_struct) {
    if registers.rax != libc::SYS_restart_syscall as u64 {
        return;
    }
    let mut code = [0; BEFORE_CALL];
    let start = registers.rip.wrapping_sub(BEFORE_CALL as u64);
    if memory.read(start, &mut code) == code.len() {
        registers.rax = timed_call(&code).unwrap_or(registers.rax);
    }
}

/// The last number in this code that is one of a call which `restart_syscall` goes on with.
fn timed_call(code: &[u8]) -> Option<u64> {
    const MOV_EAX: u8 = 0xb8;
    const TIMED: [i64; 4] = [
        libc::SYS_nanosleep,
        libc::SYS_clock_nanosleep,
        libc::SYS_poll,
        libc::SYS_futex,
    ];
    let number = |code: &[u8]| {
        let (first, number) = code.split_first()?;
        let number = i64::from(u32::from_le_bytes(number.try_into().ok()?));
        (*first == MOV_EAX && TIMED.contains(&number)).then_some(number as u64)
    };
    code.windows(5).filter_map(number).next_back()
}

/// The kernel's own page at the top of the address space can't be mapped.
fn region(mapping: &Mapping) -> Option<Region> {
    let right = |given: bool, right: i32| if given { right } else { 0 };
    let region = Region {
        start: mapping.start,
        end: mapping.end,
        protection: right(mapping.readable, libc::PROT_READ)
            | right(mapping.writable, libc::PROT_WRITE)
            | right(mapping.executable, libc::PROT_EXEC),
        fresh: false,
        // The kernel's own pages, [vdso] and [vvar], have no file either.
        anonymous: mapping.inode == 0 && !mapping.shared && !mapping.path.starts_with("[v"),
    };
    i64::try_from(region.end).is_ok().then_some(region)
}

/// The ids as the thread itself sees them, in the innermost pid namespace.
pub(crate) fn identity(pid: u32, tid: u32) -> Result<Identity, Error> {
    let status = Status::of_thread(pid, tid)?;
    let last = |name| status.numbers(name).last().copied();
    let pair = |name| match status.numbers(name)[..] {
        [real, effective, ..] => Some([real, effective]),
        _ => None,
    };
    let missing = || Error::from(ErrorKind::InvalidData);
    Ok(Identity {
        pid: last("NStgid:").ok_or_else(missing)?,
        tid: last("NSpid:").ok_or_else(missing)?,
        parent: last("PPid:").ok_or_else(missing)?,
        user: pair("Uid:").ok_or_else(missing)?,
        group: pair("Gid:").ok_or_else(missing)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_goes_on_is_known_by_its_number() {
        // mov eax, 230; mov r10, rcx
        let sleep = [0xb8, 0xe6, 0, 0, 0, 0x49, 0x89, 0xca];
        assert_eq!(timed_call(&sleep), Some(230));
        // mov eax, 0; the number came in a register
        assert_eq!(timed_call(&[0xb8, 0, 0, 0, 0, 0x48, 0x89, 0xf8]), None);
    }

    #[test]
    fn mappings_are_regions_and_the_kernels_page_is_none() {
        let text = "7f00-8000 r-xp 00000000 08:01 1 /lib/x y\n\
            ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]";
        let maps = Maps::parse(text);
        let [code, kernels] = maps.all() else {
            panic!("two mappings")
        };
        let found = region(code).expect("a region");
        assert_eq!((found.start, found.end), (0x7f00, 0x8000));
        assert_eq!(found.protection, libc::PROT_READ | libc::PROT_EXEC);
        assert_eq!(region(kernels), None);
    }

    #[test]
    fn a_thread_knows_its_own_ids() {
        let pid = std::process::id();
        let known = identity(pid, pid).expect("this process");
        assert_eq!(known.pid, pid);
        // SAFETY: these calls cannot fail.
        let (parent, user) = unsafe { (libc::getppid() as u32, libc::getuid()) };
        assert_eq!((known.parent, known.user[0]), (parent, user));
    }
}
