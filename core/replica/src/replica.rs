// SPDX-License-Identifier: MIT
//! A copy of a thread: its memory comes in page by page, its calls are answered.

use std::fs::File;
use std::io::Result;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::ahead::Software;
use crate::answer::{Answer, Halt};
use crate::child::{Child, Stop};
use crate::clock::Clock;
use crate::descriptors::Descriptors;
use crate::last_call::Recalled;
use crate::pages::Pages;
use crate::source::{Identity, Page, Region, ThreadState, PAGE};
use crate::supposition::{Recheck, Supposing};
use crate::touched::{is_too_much, Counted};

/// The code segments of 32-bit programs, of Linux itself and of one below Xen.
const SHORT_MODE: [u64; 2] = [0x23, 0xe023];
/// `si_code` of a SIGSEGV where nothing is mapped.
const NOTHING_MAPPED: i32 = 1;
/// Bytes that are compared at once.
const WORD: usize = 8;

/// The result of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// One instruction was executed.
    Step,
    /// A system call was answered.
    Call {
        /// As x86-64 Linux counts them.
        number: u32,
        /// Negative errno where it failed.
        result: i64,
    },
    /// The alarm of a copy that runs.
    Tick,
    /// The copy can't go on.
    Halt(Halt),
}

/// See the module. It belongs to the thread that made it: ptrace serves that one only.
pub struct Replica<'a> {
    pub(crate) pages: &'a Pages<'a>,
    /// Pages as they were when the thread was stopped, or as the copy that this one was copied from
    /// had them.
    own: FxHashMap<u64, Page>,
    pub(crate) child: Child,
    pub(crate) regions: Vec<Region>,
    /// Pages that are there, and their protection.
    mapped: FxHashMap<u64, i32>,
    pub(crate) registers: libc::user_regs_struct,
    pub(crate) clock: Clock,
    pub(crate) identity: Identity,
    pub(crate) mask: u64,
    /// Bytes that it read of each file descriptor.
    pub(crate) moved: FxHashMap<i32, u64>,
    pub(crate) opened: FxHashMap<i32, Arc<File>>,
    /// Output is said to succeed, and goes nowhere.
    pub(crate) pretends: bool,
    /// It was given an answer that is not known to be the true one.
    pub(crate) assumed: bool,
    pub(crate) recalled: Recalled,
    /// How often each of its guesses was taken.
    pub(crate) guessed: Vec<u32>,
    /// How calls are answered by supposition.
    pub(crate) supposing: Option<Supposing>,
    /// How many waits ended because others gave back what they held; `None`: such a wait halts the
    /// copy.
    pub(crate) given_back: Option<u32>,
    /// A branch behind its wait that goes its other way.
    pub(crate) recheck: Option<Recheck>,
    /// The last stop was a call: the next step may end before an instruction.
    behind_call: bool,
    pub(crate) software: Software,
    counted: Counted,
}

impl<'a> Replica<'a> {
    /// # Errors
    /// When the system gives no process for it.
    pub fn start(pages: &'a Pages<'a>, state: &ThreadState) -> Result<Replica<'a>> {
        let regions = pages.source().regions().to_vec();
        let own = state.stack.iter().cloned().collect();
        Replica::with(pages, state, regions, own, Clock::now())
    }

    fn with(
        pages: &'a Pages<'a>,
        state: &ThreadState,
        regions: Vec<Region>,
        own: FxHashMap<u64, Page>,
        clock: Clock,
    ) -> Result<Replica<'a>> {
        let child = Child::start(&regions)?;
        let mut registers = state.registers;
        // The kernel would take it for an interrupted call.
        registers.orig_rax = u64::MAX;
        // Of another machine's processor: vector registers then begin as after exec.
        let _ = child.set_extended(&state.extended);
        child.set_registers(&registers)?;
        Ok(Replica {
            pages,
            own,
            child,
            regions,
            mapped: FxHashMap::default(),
            registers,
            clock,
            identity: state.identity,
            mask: 0,
            moved: FxHashMap::default(),
            opened: FxHashMap::default(),
            pretends: false,
            assumed: false,
            supposing: None,
            guessed: Vec::new(),
            recalled: state.recalled.clone(),
            given_back: None,
            recheck: None,
            behind_call: false,
            software: Software::default(),
            counted: Counted::default(),
        })
    }

    /// Another copy in the state of this one.
    ///
    /// # Errors
    /// When the system gives no process for it.
    pub fn copy(&self) -> Result<Replica<'a>> {
        let mut own = self.own.clone();
        for page in self.mapped.keys() {
            let mut content = Box::new([0; PAGE as usize]);
            // What can't be read has no content to lose.
            if self.child.read(*page, &mut content[..]) == content.len() {
                own.insert(*page, content);
            }
        }
        let newer = self.software.newer();
        own.extend(newer.map(|(page, content)| (page, content.clone())));
        let state = ThreadState {
            registers: self.registers,
            extended: self.child.extended()?,
            stack: Vec::new(),
            identity: self.identity,
            recalled: self.recalled.clone(),
        };
        let mut copy = Replica::with(self.pages, &state, self.regions.clone(), own, self.clock)?;
        copy.mask = self.mask;
        copy.moved.clone_from(&self.moved);
        copy.opened.clone_from(&self.opened);
        copy.given_back = self.given_back;
        Ok(copy)
    }

    pub(crate) fn descriptors(&self) -> Option<&'a Descriptors> {
        self.pages.source().descriptors()
    }

    /// From now on calls that write to descriptors, or close them, answer as if they had succeeded.
    pub fn pretend_output(&mut self) {
        self.pretends = true;
    }

    /// Whether an answer was assumed or supposed: what was ready is not in a core file.
    pub fn has_assumed(&self) -> bool {
        self.assumed || !self.supposed().is_empty() || !self.guessed.is_empty()
    }

    /// How many words of its memory are others than when it began.
    ///
    /// # Errors
    /// When its process is gone.
    pub fn changed_words(&mut self) -> Result<usize> {
        self.hand_over()?;
        let pages: FxHashSet<u64> = self.mapped.keys().chain(self.own.keys()).copied().collect();
        let mut changed = 0;
        for page in pages {
            let before = self.pages.page(page);
            if let Some((now, _)) = self.page_now(page)? {
                let words = now.chunks(WORD).zip(before.chunks(WORD));
                changed += words.filter(|(now, before)| now != before).count();
            }
        }
        Ok(changed)
    }

    /// The process that the copy runs in.
    pub fn process(&self) -> i32 {
        self.child.pid
    }

    /// General registers before the next instruction.
    pub fn registers(&self) -> &libc::user_regs_struct {
        &self.registers
    }

    pub(crate) fn step_process(&mut self) -> Result<Event> {
        self.advance(Child::step)
    }

    pub(crate) fn advance(&mut self, go: impl Fn(&Child) -> Result<Stop>) -> Result<Event> {
        self.hand_over()?;
        self.forget_pages();
        loop {
            let stop = go(&self.child)?;
            let before = self.registers.rip;
            if stop != Stop::Gone {
                self.registers = self.child.registers()?;
            }
            match stop {
                Stop::Trap => {
                    let behind_call = std::mem::take(&mut self.behind_call);
                    if !(behind_call && self.registers.rip == before) {
                        return Ok(Event::Step);
                    }
                }
                _ if self.is_short() => return Ok(Event::Halt(Halt::Short)),
                Stop::ShortCall => return Ok(Event::Halt(Halt::Short)),
                Stop::Call => {
                    self.behind_call = true;
                    return self.call(self.registers.orig_rax as u32);
                }
                Stop::OldCall => return self.call(self.registers.rax as u32),
                Stop::Alarm => return Ok(Event::Tick),
                Stop::Signal {
                    number: libc::SIGSEGV,
                    code: NOTHING_MAPPED,
                    address,
                } if self.bring(address)? => {
                    if self.is_too_large() {
                        return Ok(Event::Halt(Halt::TooLarge));
                    }
                }
                Stop::Signal {
                    number, address, ..
                } => {
                    return Ok(Event::Halt(match self.lacks(address) {
                        true => Halt::Untouched { address },
                        false => Halt::Fault { number, address },
                    }))
                }
                Stop::Gone => return Ok(Event::Halt(Halt::Gone)),
            }
        }
    }

    /// Has it more pages than copies may, with all others?
    pub(crate) fn is_too_large(&self) -> bool {
        let pages = self.mapped.len() + self.own.len() + self.software.pages.len();
        self.counted.set(pages);
        is_too_much()
    }

    /// Does it run code of 32-bit programs?
    pub(crate) fn is_short(&self) -> bool {
        SHORT_MODE.contains(&self.registers.cs)
    }

    fn call(&mut self, number: u32) -> Result<Event> {
        let r = self.registers;
        let arguments = [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9];
        let result = match self.answer_or_suppose(number, &arguments)? {
            Answer::Result(result) => result,
            Answer::Halt(halt) => return Ok(Event::Halt(halt)),
        };
        self.registers.rax = result as u64;
        self.registers.orig_rax = u64::MAX;
        self.child.set_registers(&self.registers)?;
        Ok(Event::Call { number, result })
    }

    /// Brings in the page at `address`. `false`: it is there already, or there is none.
    fn bring(&mut self, address: u64) -> Result<bool> {
        let page = address & !(PAGE - 1);
        let Some(region) = self.regions.iter().find(|region| region.holds(page)) else {
            return Ok(false);
        };
        if self.mapped.contains_key(&page) || region.protection == libc::PROT_NONE {
            return Ok(false);
        }
        let protection = region.protection;
        let Some(content) = self.content(page, region.fresh) else {
            return Ok(false);
        };
        self.child.map(page, &content, protection)?;
        self.mapped.insert(page, protection);
        Ok(true)
    }

    /// The content of a page that the process does not have yet; `None`: it can't be known.
    fn content(&self, page: u64, fresh: bool) -> Option<[u8; PAGE as usize]> {
        match self.own.get(&page) {
            Some(own) => Some(**own),
            None if fresh => Some([0; PAGE as usize]),
            None => Some(self.pages.page(page)).filter(|_| !self.pages.source().withholds(page)),
        }
    }

    /// Is it a place whose content could not be known?
    fn lacks(&self, address: u64) -> bool {
        let page = address & !(PAGE - 1);
        !self.mapped.contains_key(&page) && self.pages.source().withholds(page)
    }

    /// A page as the copy has it, and its protection; `None`: nothing can be read there.
    pub(crate) fn page_now(&self, page: u64) -> Result<Option<(Page, i32)>> {
        if let Some(protection) = self.mapped.get(&page) {
            let mut content = Box::new([0; PAGE as usize]);
            let whole = self.child.read(page, &mut content[..]) == content.len();
            return Ok(whole.then_some((content, *protection)));
        }
        let region = self.regions.iter().find(|region| region.holds(page));
        let readable = region.filter(|region| region.protection & libc::PROT_READ != 0);
        Ok(readable.and_then(|region| {
            let content = self.content(page, region.fresh)?;
            Some((Box::new(content), region.protection))
        }))
    }

    /// The process has this content of the page from now on.
    pub(crate) fn give_page(&mut self, page: u64, content: &Page) -> Result<()> {
        if !self.mapped.contains_key(&page) {
            self.own.insert(page, content.clone());
        } else if self.child.write(page, &content[..]) != content.len() {
            return Err(std::io::Error::from_raw_os_error(libc::EFAULT));
        }
        Ok(())
    }

    /// Writes memory of the copy; `false` where part of it isn't there, or is read-only.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<bool> {
        self.hand_over()?;
        self.software.forget(address, bytes.len() as u64);
        self.bring_all(address, bytes.len())?;
        Ok(self.child.write(address, bytes) == bytes.len())
    }

    fn bring_all(&mut self, address: u64, length: usize) -> Result<()> {
        let Some(last) = address.checked_add(length.saturating_sub(1) as u64) else {
            return Ok(());
        };
        let mut page = address & !(PAGE - 1);
        while page <= last {
            self.bring(page)?;
            page += PAGE;
        }
        Ok(())
    }

    /// Fails where the stretch holds the page from which we make calls in the copy: what the
    /// program would put there would be executed in its place.
    fn spare_home(&self, start: u64, end: u64) -> Result<()> {
        match self.child.is_home_within(start, end) {
            true => Err(std::io::Error::from_raw_os_error(libc::EFAULT)),
            false => Ok(()),
        }
    }

    /// Takes a stretch out of the address space.
    pub(crate) fn unmap(&mut self, start: u64, end: u64) -> Result<()> {
        self.spare_home(start, end)?;
        self.forget_pages();
        let inside = |page: &u64| (start..end).contains(page);
        let pages: Vec<u64> = self.mapped.keys().copied().filter(inside).collect();
        for page in pages {
            self.child.unmap(page)?;
            self.mapped.remove(&page);
        }
        self.own.retain(|page, _| !inside(page));
        let parts = std::mem::take(&mut self.regions);
        self.regions = parts
            .into_iter()
            .flat_map(|region| outside(region, start, end))
            .collect();
        Ok(())
    }

    /// Puts fresh memory into a stretch.
    pub(crate) fn map(&mut self, start: u64, end: u64, protection: i32) -> Result<()> {
        self.unmap(start, end)?;
        let at = self.regions.partition_point(|region| region.start < start);
        let fresh = true;
        let region = Region {
            start,
            end,
            protection,
            fresh,
            anonymous: fresh,
        };
        self.regions.insert(at, region);
        Ok(())
    }

    /// Changes what may be done with a stretch; `false`: part of it is not there.
    pub(crate) fn protect(&mut self, start: u64, end: u64, protection: i32) -> Result<bool> {
        self.spare_home(start, end)?;
        self.forget_pages();
        let parts = std::mem::take(&mut self.regions);
        let mut covered = 0;
        for region in parts {
            let (from, to) = (region.start.max(start), region.end.min(end));
            if from >= to {
                self.regions.push(region);
                continue;
            }
            covered += to - from;
            let inside = Region {
                start: from,
                end: to,
                protection,
                ..region
            };
            let mut pieces: Vec<Region> = outside(region, start, end).collect();
            pieces.push(inside);
            pieces.sort_by_key(|piece| piece.start);
            self.regions.extend(pieces);
        }
        for (page, now) in &mut self.mapped {
            if (start..end).contains(page) && *now != protection {
                self.child.protect(*page, protection)?;
                *now = protection;
            }
        }
        Ok(covered == end - start)
    }

    /// An address at which `length` bytes are free.
    pub(crate) fn free_place(&self, length: u64) -> Option<u64> {
        // Below the lowest library, where no program expects anything.
        let mut end = 0x7000_0000_0000u64;
        loop {
            let start = end.checked_sub(length)?;
            let taken = self
                .regions
                .iter()
                .filter(|region| region.start < end && region.end > start);
            match taken.map(|region| region.start).min() {
                Some(lower) => end = lower,
                None => return Some(start),
            }
        }
    }
}

/// What is left of a region without a stretch.
fn outside(region: Region, start: u64, end: u64) -> impl Iterator<Item = Region> {
    let below = Region {
        end: region.end.min(start.max(region.start)),
        ..region
    };
    let above = Region {
        start: region.start.max(end.min(region.end)),
        ..region
    };
    let apart = region.end <= start || region.start >= end;
    let parts = match apart {
        true => [Some(region), None],
        false => [Some(below), Some(above)],
    };
    parts
        .into_iter()
        .flatten()
        .filter(|part| part.start < part.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_without_its_middle_has_two_ends() {
        let region = Region {
            start: 0x1000,
            end: 0x5000,
            protection: libc::PROT_READ,
            fresh: false,
            anonymous: false,
        };
        let parts = |start, end| {
            let parts = outside(region, start, end);
            parts.map(|r| (r.start, r.end)).collect::<Vec<_>>()
        };
        assert_eq!(parts(0x2000, 0x3000), [(0x1000, 0x2000), (0x3000, 0x5000)]);
        assert_eq!(parts(0, 0x2000), [(0x2000, 0x5000)]);
        assert_eq!(parts(0x4000, 0x9000), [(0x1000, 0x4000)]);
        assert_eq!(parts(0, 0x9000), []);
        assert_eq!(parts(0x6000, 0x9000), [(0x1000, 0x5000)]);
    }
}
