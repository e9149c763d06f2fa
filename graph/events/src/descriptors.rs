// SPDX-License-Identifier: MIT
//! What the descriptors are that threads wait on or send through, looked up in /proc soon after
//! they were used; of sockets also the other end.
//!
//! A number may be closed and opened again meanwhile: so a descriptor is looked up again when it
//! was known for twice as long as at the last look, at least each second; and at once when a call
//! is seen that may have changed it later than it was looked up, or that the file does not fit.
//! What is written says when it was looked up. What was so for longer is written once more when it
//! changes, with the time of its last use: a reader takes the first that is no older than a use.

use std::collections::hash_map::Entry;
use std::collections::BTreeSet;

use flagfinder_linux::proc::link;
use flagfinder_linux::{clock, traits};
use rustc_hash::FxHashMap;

use crate::call::Call;
use crate::event::{Event, Kind};
use crate::facts::DescriptorFact;
use crate::threads::Threads;
use flagfinder_waits::descriptor::socket;
use flagfinder_waits::Sockets;

/// For how long a look is trusted, at least and at most: a number of a program that starts is soon
/// another file's, one that was the same for long stays so.
const TRUSTED: (u64, u64) = (5_000_000, 1_000_000_000);
/// Most look-ups between two flushes; each takes some microseconds of the consumer.
const MOST: usize = 500;

/// A descriptor whose file is known.
#[derive(Debug)]
struct Known {
    /// When it was looked up last, and until when that is trusted.
    looked: u64,
    until: u64,
    /// When it was used last.
    used: u64,
    /// As it was written.
    fact: DescriptorFact,
}

/// One that was looked up since the last time that any were taken.
#[derive(Debug)]
struct Looked {
    fact: DescriptorFact,
    used: u64,
    /// It may change at once.
    is_changing: bool,
    /// The number was another file's since.
    is_over: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Descriptors {
    /// By process and number.
    known: FxHashMap<u32, FxHashMap<i32, Known>>,
    looked_at: Vec<Looked>,
    /// What it was until it was used last.
    over: Vec<DescriptorFact>,
    looked_up: usize,
}

/// It has its other end only afterwards.
const CONNECT: u16 = libc::SYS_connect as u16;

impl Known {
    /// What is to be written when another file takes its place.
    fn last(self) -> Option<DescriptorFact> {
        let last = DescriptorFact {
            ts: self.used,
            ..self.fact
        };
        (self.used > self.fact.ts).then_some(last)
    }
}

impl Descriptors {
    /// Looks at the event's descriptor, if it has one. `now` is the present time.
    pub fn see(&mut self, event: &Event, threads: &Threads, now: u64) {
        let pid = threads.pid(event.a);
        match event.kind {
            Kind::Switch | Kind::Enter | Kind::EnterWide => {
                if let Some(call) = event.call() {
                    self.see_call(pid, call, event.ts, now);
                }
            }
            Kind::ExitCall => {
                // openat, socket, accept, pipe, eventfd ..: a new number.
                let opened = event
                    .call_end()
                    .filter(|end| (0..1 << 16).contains(&end.result));
                if let (Some(end), Some(pid)) = (opened, pid) {
                    if !Call::waits(end.number) && !Call::sends(end.number) {
                        self.changed((pid, end.result as i32), event.ts);
                    }
                }
            }
            // Some are closed by it.
            Kind::Exec => self.all_changed(event.halves(0).0, event.ts),
            Kind::Exit if Some(event.a) == pid => self.ended(event.a),
            _ => {}
        }
    }

    /// Another file may have this number since `ts`.
    fn changed(&mut self, key: (u32, i32), ts: u64) {
        let mut looked_at = self.looked_at.iter_mut();
        let it = looked_at.find(|one| one.is(key) && one.fact.ts < ts);
        it.into_iter().for_each(|one| one.is_over = true);
        let of_process = self.known.get_mut(&key.0);
        let before = of_process.and_then(|all| match all.entry(key.1) {
            Entry::Occupied(known) if known.get().looked < ts => Some(known.remove()),
            _ => None,
        });
        self.over.extend(before.and_then(Known::last));
    }

    fn all_changed(&mut self, pid: u32, ts: u64) {
        let known = self.known.get(&pid).into_iter().flat_map(|all| all.keys());
        let looked_at = self.looked_at.iter().filter(|one| one.fact.pid == pid);
        let looked_at = looked_at.map(|one| one.fact.fd);
        let all: Vec<i32> = known.copied().chain(looked_at).collect();
        all.into_iter().for_each(|fd| self.changed((pid, fd), ts));
    }

    fn ended(&mut self, pid: u32) {
        self.known.remove(&pid);
        let looked_at = self.looked_at.iter_mut();
        let its = looked_at.filter(|one| one.fact.pid == pid);
        its.for_each(|one| one.is_over = true);
    }

    fn see_call(&mut self, pid: Option<u32>, call: Call, ts: u64, now: u64) {
        let (Some(fd), Some(pid)) = (call.descriptor(), pid) else {
            return;
        };
        if traits::replaces_descriptor(call.number.into()) {
            self.changed((pid, fd), ts);
            return;
        }
        let needs_socket = traits::needs_socket(call.number.into());
        // A call on sockets shows that the number was closed and opened again, unseen.
        let fits = |fact: &DescriptorFact| !needs_socket || socket(&fact.target).is_some();
        let known = self.known.get_mut(&pid).and_then(|all| all.get_mut(&fd));
        if let Some(known) = known.filter(|known| now < known.until && fits(&known.fact)) {
            known.used = ts;
            return;
        }
        let mut looked_at = self.looked_at.iter_mut();
        if let Some(one) = looked_at.find(|one| one.is((pid, fd))) {
            one.used = ts;
            return;
        }
        if self.looked_up >= MOST {
            return;
        }
        self.looked_up += 1;
        // A file that comes in between is taken for a later one, and the number is looked up again.
        let looked = clock::kernel();
        let Some(target) = link(pid, fd) else {
            return;
        };
        self.looked_at.push(Looked {
            fact: DescriptorFact {
                ts: looked,
                pid,
                fd,
                target,
                ..DescriptorFact::default()
            },
            used: ts,
            is_changing: call.number == CONNECT,
            is_over: false,
        });
    }

    /// What was found later of one of them.
    pub fn learn(&mut self, found: &DescriptorFact) {
        let of_process = self.known.get_mut(&found.pid);
        let known = of_process.and_then(|all| all.get_mut(&found.fd));
        if let Some(known) = known.filter(|known| known.fact.target == found.target) {
            known.fact.clone_from(found);
        }
    }

    /// All, as they were when they were last looked up.
    pub fn known(&self) -> Vec<&DescriptorFact> {
        let all = self.known.values().flat_map(|all| all.values());
        all.map(|known| &known.fact).collect()
    }

    /// Forgets those of other processes.
    pub fn retain(&mut self, pids: &BTreeSet<u32>) {
        self.known.retain(|pid, _| pids.contains(pid));
    }

    /// Those that are new since the last time, sockets with their other ends.
    pub fn take(&mut self) -> Vec<DescriptorFact> {
        self.looked_up = 0;
        let mut sockets: Option<Sockets> = None;
        let mut found = std::mem::take(&mut self.over);
        for mut looked in std::mem::take(&mut self.looked_at) {
            let (key, fact) = (looked.key(), &mut looked.fact);
            if let Some(inode) = socket(&fact.target) {
                if sockets.is_none() {
                    sockets = Sockets::new().ok();
                }
                let peer = sockets.as_mut().and_then(|all| all.peer(inode));
                fact.records = peer.is_some_and(|peer| peer.records);
                fact.remote = sockets.as_mut().and_then(|all| all.remote(inode));
                fact.at = sockets.as_mut().and_then(|all| all.own(inode));
                fact.peer = peer.map(|peer| format!("socket:[{}]", peer.inode));
            }
            let (at, used) = (fact.ts, looked.used);
            let same = |b: &Known| {
                let b = &b.fact;
                b.target == fact.target && b.peer == fact.peer && b.remote == fact.remote
            };
            let of_process = self.known.entry(key.0).or_default();
            let fact = match of_process.remove(&key.1) {
                Some(before) if same(&before) => before.fact,
                before => {
                    found.extend(before.and_then(Known::last));
                    found.push(fact.clone());
                    looked.fact
                }
            };
            let trusted = (at - fact.ts).clamp(TRUSTED.0, TRUSTED.1);
            let until = at + if looked.is_changing { 0 } else { trusted };
            let known = Known {
                looked: at,
                until,
                used,
                fact,
            };
            if looked.is_over {
                found.extend(known.last());
            } else {
                of_process.insert(key.1, known);
            }
        }
        found
    }
}

impl Looked {
    fn key(&self) -> (u32, i32) {
        (self.fact.pid, self.fact.fd)
    }

    /// Whether it tells what the number is now.
    fn is(&self, key: (u32, i32)) -> bool {
        !self.is_over && self.key() == key
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_call_on_sockets_looks_again_at_what_was_a_file() {
        let mut descriptors = Descriptors::default();
        let file: OwnedFd = File::open("/dev/null").expect("opened").into();
        let (one, _other) = UnixStream::pair().expect("a pair");
        let pid = Some(std::process::id());
        let mut look = |number: libc::c_long, now| {
            let argument = file.as_raw_fd() as u64;
            let (number, first) = (number as u16, argument);
            descriptors.see_call(pid, Call { number, first }, now, now);
            let found = descriptors.take();
            found
                .into_iter()
                .map(|fact| fact.target)
                .collect::<Vec<_>>()
        };
        assert_eq!(look(libc::SYS_read, 1), ["/dev/null"]);
        // SAFETY: both are descriptors of ours.
        assert!(unsafe { libc::dup2(one.as_raw_fd(), file.as_raw_fd()) } >= 0);
        assert_eq!(look(libc::SYS_read, 2), [""; 0]);
        assert!(look(libc::SYS_recvfrom, 3)[0].starts_with("socket:["));
        assert_eq!(look(libc::SYS_recvfrom, 4), [""; 0]);
    }
    /// A descriptor of this process that was a file and becomes the end of a pair, and what is to
    /// be done with it.
    struct Number {
        descriptors: Descriptors,
        file: OwnedFd,
        pair: (UnixStream, UnixStream),
    }

    impl Number {
        fn new() -> Number {
            Number {
                descriptors: Descriptors::default(),
                file: File::open("/dev/null").expect("opened").into(),
                pair: UnixStream::pair().expect("a pair"),
            }
        }

        /// A call at `ts` is seen now.
        fn sees(&mut self, number: libc::c_long, ts: u64) {
            let (number, first) = (number as u16, self.file.as_raw_fd() as u64);
            let call = Call { number, first };
            let now = clock::kernel();
            let pid = Some(std::process::id());
            self.descriptors.see_call(pid, call, ts, now);
        }

        fn becomes_a_socket(&self) {
            // SAFETY: both are descriptors of ours.
            let made = unsafe { libc::dup2(self.pair.0.as_raw_fd(), self.file.as_raw_fd()) };
            assert!(made >= 0);
        }

        /// What each that was looked up is, and since when a reader is to take it.
        fn taken(&mut self) -> Vec<(bool, u64)> {
            let found = self.descriptors.take().into_iter();
            found
                .map(|fact| (fact.target.starts_with("socket:["), fact.ts))
                .collect()
        }
    }

    #[test]
    fn a_number_that_is_closed_before_it_was_written_is_looked_up_again() {
        let mut number = Number::new();
        number.sees(libc::SYS_read, 1);
        let closed = clock::kernel() + 1;
        number.becomes_a_socket();
        number.sees(libc::SYS_close, closed);
        number.sees(libc::SYS_read, closed + 1);
        let found = number.taken();
        assert_eq!(found.iter().map(|f| f.0).collect::<Vec<_>>(), [false, true]);
        assert!(found[0].1 < closed && closed <= found[1].1);
        number.sees(libc::SYS_read, closed + 2);
        assert_eq!(number.taken(), []);
    }

    #[test]
    fn a_number_that_was_looked_up_after_it_changed_is_known() {
        let mut number = Number::new();
        number.becomes_a_socket();
        number.sees(libc::SYS_read, 1);
        number.sees(libc::SYS_close, 2);
        number.sees(libc::SYS_read, 3);
        assert_eq!(number.taken().len(), 1);
        number.sees(libc::SYS_close, 4);
        number.sees(libc::SYS_read, 5);
        assert_eq!(number.taken(), []);
    }

    #[test]
    fn a_descriptors_old_file_is_written_with_its_last_use() {
        let mut number = Number::new();
        number.sees(libc::SYS_read, 1);
        let [(false, looked)] = number.taken()[..] else {
            panic!("one file");
        };
        for later in [10, 20] {
            number.sees(libc::SYS_read, looked + later);
        }
        assert_eq!(number.taken(), []);
        number.becomes_a_socket();
        number.sees(libc::SYS_close, looked + 30);
        number.sees(libc::SYS_read, looked + 40);
        let found = number.taken();
        assert_eq!(found[0], (false, looked + 20));
        assert_eq!(found.len(), 2);
        assert!(found[1].0);
    }

    #[test]
    fn a_number_is_trusted_for_as_long_as_it_was_the_same() {
        let mut number = Number::new();
        let until = |number: &Number| {
            let known = &number.descriptors.known[&std::process::id()][&number.file.as_raw_fd()];
            known.until - known.looked
        };
        number.sees(libc::SYS_read, 1);
        number.taken();
        assert_eq!(until(&number), TRUSTED.0);
        std::thread::sleep(std::time::Duration::from_millis(20));
        number.sees(libc::SYS_read, 2);
        number.taken();
        assert!(until(&number) >= 20_000_000, "it was the same for so long");
        assert!(until(&number) <= TRUSTED.1);
    }

    #[test]
    fn of_a_process_that_has_ended_nothing_is_kept() {
        let mut number = Number::new();
        number.sees(libc::SYS_read, 1);
        number.taken();
        number.descriptors.ended(std::process::id());
        assert_eq!(number.descriptors.known().len(), 0);
        number.sees(libc::SYS_read, 2);
        number.descriptors.ended(std::process::id());
        assert_eq!(number.taken().len(), 1);
        assert_eq!(number.descriptors.known().len(), 0);
    }
}
