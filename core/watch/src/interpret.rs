// SPDX-License-Identifier: MIT
//! From a hit to an event: what the instruction did, and which values it saw and left.

use flagfinder_linux::clock;

use crate::access::{failed_exchange, Access, Effect};
use crate::event::{Event, EventKind, ValueSource};
use crate::naming::Naming;
use crate::place::Place;
use crate::protocol::{Hit, ReadSite, HIT_SITE, MARK_KERNEL, MARK_VALUE, NO_CPU};
use crate::seen::{read_site, Look, Seen};
use crate::site::Site;
use crate::value::proven;
use crate::word::Word;
use flagfinder_code::{AddressSpace, ProcessMemory};

/// Keeps the words' values from event to event.
#[derive(Debug)]
pub(crate) struct Interpreter {
    words: Vec<Word>,
    /// Words that were asked for. In events their numbers come first, then those of the sites, then
    /// those of words that sites told of.
    named: usize,
}

/// What a system call does to memory that it is given.
fn syscall_effect(number: i64) -> Option<EventKind> {
    match number {
        // write pwrite64 writev sendto sendmsg pwritev process_vm_writev
        1 | 18 | 20 | 44 | 46 | 296 | 311 => Some(EventKind::Read),
        // read pread64 readv recvfrom recvmsg exit (clears the id of the thread) preadv
        // process_vm_readv getrandom
        0 | 17 | 19 | 45 | 47 | 60 | 295 | 310 | 318 => Some(EventKind::Write),
        // futex compares the word before it sleeps
        202 => Some(EventKind::Read),
        _ => None,
    }
}

impl Interpreter {
    pub fn new(words: &[Place], reads: bool, memory: &ProcessMemory) -> Self {
        let words = words.iter().map(|place| {
            let first = memory.number(place.address, place.size as usize);
            Word::new((place.address, place.size), reads, first)
        });
        let words: Vec<Word> = words.collect();
        Interpreter {
            named: words.len(),
            words,
        }
    }

    /// One more word, whose writes trap already.
    pub fn add(&mut self, place: (u64, u32), object: Option<u64>, memory: &ProcessMemory) {
        let first = memory.number(place.0, place.1 as usize);
        let mut word = Word::new(place, false, first);
        word.object = object;
        self.words.push(word);
    }

    pub fn count(&self) -> usize {
        self.words.len()
    }

    pub fn has(&self, address: u64) -> bool {
        self.words.iter().any(|word| word.address == address)
    }

    pub fn armed(&mut self, memory: &ProcessMemory) {
        for word in &mut self.words {
            let (address, size) = word.place();
            let value = memory.number(address, size as usize);
            // Not before it is read: a write that left this value must be the earlier one.
            word.armed(value, clock::monotonic());
        }
    }

    /// The word's value when the watch began.
    pub fn first_value(&self, index: usize) -> Option<u64> {
        self.words.get(index)?.first
    }

    fn access(&self, hit: &Hit, naming: &mut Naming) -> Option<Access> {
        let word = self.words.get(usize::from(hit.place))?;
        if hit.has(MARK_KERNEL) {
            return None;
        }
        naming.access(hit.ip, &hit.registers, hit.place, word.place())
    }

    /// If the code never writes: where it shows what it read.
    pub fn read_site(&self, hit: &Hit, naming: &mut Naming) -> Option<ReadSite> {
        if hit.kind == HIT_SITE {
            return None;
        }
        read_site(&self.access(hit, naming)?)
    }

    /// The value that the last event of the hit's word left.
    pub fn value_before(&self, hit: &Hit) -> Option<u64> {
        self.words.get(usize::from(hit.place))?.last()
    }

    /// A hit of a word by itself.
    pub fn look(&self, hit: &Hit, naming: &mut Naming) -> Look {
        let access = self.access(hit, naming).filter(|_| hit.kind != HIT_SITE);
        let kind = self.kind(hit, access.as_ref());
        let word = self.words.get(usize::from(hit.place));
        let Some((access, word)) = access.zip(word) else {
            return Look {
                kind,
                seen: Seen::default(),
                left: None,
            };
        };
        let place = word.place();
        let proven = proven(&access, &hit.registers, hit.rflags, place, word.last());
        Look {
            kind,
            seen: Seen::of(&access, &hit.registers, hit.rflags, place),
            left: proven.new,
        }
    }

    /// What a hit of a watch is.
    fn kind(&self, hit: &Hit, access: Option<&Access>) -> EventKind {
        let write_only = self
            .words
            .get(usize::from(hit.place))
            .is_some_and(|w| !w.reads);
        match access {
            Some(access) if failed_exchange(&access.instruction, hit.rflags) => EventKind::Read,
            _ if write_only => EventKind::Write,
            Some(access) if access.effect == Effect::Read => EventKind::Read,
            Some(_) => EventKind::Write,
            None if hit.has(MARK_KERNEL) => {
                syscall_effect(hit.syscall).unwrap_or(EventKind::Access)
            }
            None => EventKind::Access,
        }
    }

    /// Whether the hit is a read, for thinning.
    pub fn reads(&self, hit: &Hit, naming: &mut Naming, sites: &[Site]) -> bool {
        if hit.kind == HIT_SITE {
            let site = sites.get(usize::from(hit.place));
            return site.is_some_and(|site| site.access.effect == Effect::Read);
        }
        let access = self.access(hit, naming);
        self.kind(hit, access.as_ref()) == EventKind::Read
    }

    /// The event of a hit. `pending`: more hits of its watch wait, so memory now holds a later
    /// value.
    pub fn event(
        &mut self,
        hit: &Hit,
        naming: &mut Naming,
        sites: &[Site],
        pending: bool,
    ) -> Event {
        let mut event = Event {
            kind: EventKind::Access,
            ts: hit.ts,
            tid: hit.tid,
            thread: hit.thread_name(),
            cpu: (hit.cpu != NO_CPU).then_some(hit.cpu),
            watch: usize::from(hit.place) + 1,
            address: hit.address,
            value: None,
            value_from: None,
            previous: None,
            reads: hit.reads,
            syscall: None,
            object: None,
            code: naming.code(hit.ip),
            stack: naming.stack(
                hit.ip,
                &hit.stack[..(hit.words as usize).min(hit.stack.len())],
            ),
        };
        match sites
            .get(usize::from(hit.place))
            .filter(|_| hit.kind == HIT_SITE)
        {
            Some(site) => self.site_event(hit, site, &mut event),
            None => {
                if usize::from(hit.place) >= self.named {
                    event.watch += sites.len();
                }
                self.word_event(hit, naming, pending, &mut event);
            }
        }
        event
    }

    fn site_event(&self, hit: &Hit, site: &Site, event: &mut Event) {
        let now = hit.has(MARK_VALUE).then_some(hit.value);
        event.watch += self.named;
        event.object = site.object(&hit.registers);
        let fails = site.exchange_fails(&hit.registers, now);
        if site.access.effect == Effect::Read || fails {
            event.kind = EventKind::Read;
            (event.value, event.previous) = (now, now);
            event.value_from = now.map(|_| ValueSource::Memory);
        } else {
            event.kind = EventKind::Write;
            event.value = site.stored(&hit.registers, now);
            event.previous = now;
            event.value_from = event.value.map(|_| ValueSource::Instruction);
        }
    }

    fn word_event(&mut self, hit: &Hit, naming: &mut Naming, pending: bool, event: &mut Event) {
        let access = self.access(hit, naming);
        event.kind = self.kind(hit, access.as_ref());
        if hit.has(MARK_KERNEL) {
            event.syscall = Some(hit.syscall);
            event.code = naming.syscall_code(hit.ip);
        } else if let Some(access) = &access {
            event.code = naming.code(access.instruction.ip());
        }
        let Some(word) = self.words.get_mut(usize::from(hit.place)) else {
            return;
        };
        let place = word.place();
        event.object = word.object;
        word.settle_first(hit.ts);
        let before = match event.kind {
            EventKind::Read => word.at_read(hit),
            _ => word.last(),
        };
        let (proven, seen) = access.as_ref().map_or_else(Default::default, |access| {
            let proven = proven(access, &hit.registers, hit.rflags, place, before);
            let seen = Seen::of(access, &hit.registers, hit.rflags, place);
            (proven, seen)
        });
        let updates = access.is_some_and(|access| access.effect == Effect::Update);
        let in_handler = hit.has(MARK_VALUE).then_some(hit.value);
        let mut choose = |surest: Option<u64>, next: (Option<u64>, ValueSource)| {
            let source = surest.map_or(next.1, |_| ValueSource::Instruction);
            event.value = surest.or(next.0);
            event.value_from = event.value.map(|_| source);
        };
        match event.kind {
            EventKind::Write => {
                let now = || {
                    in_handler.or_else(|| {
                        (!pending)
                            .then(|| naming.memory.number(place.0, place.1 as usize))
                            .flatten()
                    })
                };
                event.previous = proven.old.or_else(|| word.at_store(hit, proven.new));
                // What an update leaves follows from what it found.
                let certain = !updates || event.previous.is_some();
                choose(proven.new.filter(|_| certain), (now(), ValueSource::Memory));
                word.was_written(hit, event.value);
            }
            EventKind::Read => {
                // A read shows that the word has changed unseen, even if it does not show the new
                // value.
                let unchanged = before.filter(|&value| seen.allows(value));
                choose(proven.old, (unchanged, ValueSource::Before));
                event.previous = event.value;
                word.was_read(hit, event.value, proven.old.is_some());
            }
            EventKind::Access => {
                choose(None, (in_handler, ValueSource::Memory));
                event.previous = before;
                word.was_written(hit, event.value);
            }
        }
    }
}
