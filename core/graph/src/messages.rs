//! Messages that woke nobody: what lay in a pipe before it was read leads from who wrote it to who read it.
//!
//! In: entries and returns of calls (recorded with `--syscalls target`), what descriptors were. Out: who wrote what a read got. Bytes are counted,
//! so that of several messages those are found that were read. Blind spots: sockets, whose two ends have no common name in /proc; bytes that
//! lay in the pipe before the recording; readers that are not recorded (of what they leave behind, the oldest is forgotten).

use std::collections::VecDeque;

use flagfinder_events::{Call, CallEnd, DescriptorFact};
use rustc_hash::FxHashMap;

/// Messages of a pipe that are remembered; its own room for bytes is less.
const MOST: usize = 4096;
/// A written descriptor is looked up no earlier than it is used.
type Lookup = (u64, u32);

/// Who wrote, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sender {
    pub tid: u32,
    pub vertex: u32,
    pub ts: u64,
}

#[derive(Debug, Default)]
struct Pipe {
    /// With the bytes that are left of each.
    unread: VecDeque<(Sender, u64)>,
    /// Bytes that were read before the call that wrote them returned.
    ahead: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Messages {
    /// Pipes by process and descriptor, in order of time.
    pipes_of: FxHashMap<(u32, i32), Vec<Lookup>>,
    pipes: Vec<Pipe>,
    /// Calls on pipes that threads are in.
    open: FxHashMap<u32, (Call, u32, Sender)>,
}

impl Messages {
    pub fn new(descriptors: &[DescriptorFact]) -> Messages {
        let mut messages = Messages::default();
        let mut numbers: FxHashMap<&str, u32> = FxHashMap::default();
        for fact in descriptors {
            if fact.target.starts_with("pipe:") {
                let next = numbers.len() as u32;
                let pipe = *numbers.entry(&fact.target).or_insert(next);
                let known = messages.pipes_of.entry((fact.pid, fact.fd)).or_default();
                known.push((fact.ts, pipe));
            }
        }
        messages.pipes.resize_with(numbers.len(), Pipe::default);
        messages
    }

    fn pipe(&self, pid: u32, call: Call, ts: u64) -> Option<u32> {
        let known = self.pipes_of.get(&(pid, call.descriptor()?))?;
        let after = known.iter().find(|(seen, _)| *seen >= ts);
        after.or(known.last()).map(|(_, pipe)| *pipe)
    }

    pub fn enter(&mut self, pid: u32, call: Call, sender: Sender) {
        let pipe = self.pipe(pid, call, sender.ts);
        match pipe {
            Some(pipe) => self.open.insert(sender.tid, (call, pipe, sender)),
            None => self.open.remove(&sender.tid),
        };
    }

    /// A thread's call returns: of one that read, who wrote what it got.
    pub fn returned(&mut self, tid: u32, end: CallEnd) -> Vec<Sender> {
        let open = self.open.remove(&tid);
        let Some((_, pipe, sender)) = open.filter(|(call, ..)| call.number == end.number) else {
            return Vec::new();
        };
        let Some(bytes) = u64::try_from(end.result).ok().filter(|bytes| *bytes > 0) else {
            return Vec::new();
        };
        if Call::sends(end.number) {
            self.pipes[pipe as usize].write(sender, bytes);
            return Vec::new();
        }
        let (mut found, missing) = self.pipes[pipe as usize].read(bytes);
        if missing > 0 {
            let writing = self
                .open
                .values()
                .find(|(call, other, _)| *other == pipe && Call::sends(call.number));
            if let Some((.., writer)) = writing {
                found.push(*writer);
                self.pipes[pipe as usize].ahead += missing;
            }
        }
        found
    }
}

impl Pipe {
    fn write(&mut self, sender: Sender, bytes: u64) {
        let known = bytes.min(self.ahead);
        self.ahead -= known;
        if bytes > known {
            self.unread.push_back((sender, bytes - known));
        }
        if self.unread.len() > MOST {
            self.unread.pop_front();
        }
    }

    /// The senders of so many bytes, each vertex once, and how many bytes nobody is known to have sent.
    fn read(&mut self, mut bytes: u64) -> (Vec<Sender>, u64) {
        let mut found: Vec<Sender> = Vec::new();
        while bytes > 0 {
            let Some((sender, left)) = self.unread.front_mut() else {
                break;
            };
            if found.last().is_none_or(|last| last.vertex != sender.vertex) {
                found.push(*sender);
            }
            let taken = bytes.min(*left);
            bytes -= taken;
            *left -= taken;
            if *left == 0 {
                self.unread.pop_front();
            }
        }
        (found, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: u16 = 0;
    const WRITE: u16 = 1;

    /// Process 1 writes to descriptor 4, process 2 reads it as 3.
    fn messages() -> Messages {
        let end = |pid, fd| DescriptorFact {
            ts: 0,
            pid,
            fd,
            target: "pipe:[7]".into(),
        };
        Messages::new(&[end(1, 4), end(2, 3)])
    }

    fn begin(messages: &mut Messages, tid: u32, number: u16, vertex: u32) {
        let first = if number == READ { 3 } else { 4 };
        let sender = Sender { tid, vertex, ts: 1 };
        messages.enter(tid, Call { number, first }, sender);
    }

    fn end(messages: &mut Messages, tid: u32, number: u16, result: i64) -> Vec<u32> {
        let found = messages.returned(tid, CallEnd { number, result });
        found.iter().map(|sender| sender.vertex).collect()
    }

    fn call(messages: &mut Messages, tid: u32, number: u16, vertex: u32, result: i64) -> Vec<u32> {
        begin(messages, tid, number, vertex);
        end(messages, tid, number, result)
    }

    #[test]
    fn a_read_leads_back_to_those_whose_bytes_it_got() {
        let mut messages = messages();
        for (vertex, bytes) in [(10, 4), (10, 4), (11, 4), (12, -11)] {
            call(&mut messages, 1, WRITE, vertex, bytes);
        }
        assert_eq!(call(&mut messages, 2, READ, 20, 6), [10]);
        assert_eq!(call(&mut messages, 2, READ, 20, 100), [10, 11]);
        assert_eq!(call(&mut messages, 2, READ, 20, 0).len(), 0);
    }

    #[test]
    fn who_is_still_writing_has_sent_too_and_only_once() {
        let mut messages = messages();
        begin(&mut messages, 1, WRITE, 10);
        assert_eq!(call(&mut messages, 2, READ, 20, 4), [10]);
        end(&mut messages, 1, WRITE, 4);
        assert_eq!(call(&mut messages, 2, READ, 20, 4).len(), 0);
    }
}
