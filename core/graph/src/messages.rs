//! Messages that woke nobody: what lay in a pipe or socket before it was read leads from who wrote it to who read it.
//!
//! In: entries and returns of calls (recorded with `--syscalls target`), what descriptors were. Out: who wrote what a read got. Bytes are counted,
//! or messages where each is received by itself, so that of several messages those are found that were read. A socket's messages lie at its other
//! end. Blind spots: sockets whose other end is not known; bytes that lay there before the recording, or were only looked at (MSG_PEEK); readers that
//! are not recorded (of what they leave behind, the oldest is forgotten).

use std::collections::VecDeque;

use flagfinder_events::{Call, CallEnd, DescriptorFact};
use rustc_hash::FxHashMap;

/// Messages of a queue that are remembered; its own room for bytes is less.
const MOST: usize = 4096;
/// recvmmsg, sendmmsg: their results count messages of any length.
const SEVERAL: [u16; 2] = [299, 307];

/// Where a descriptor's messages lie. It is looked up no earlier than it is used.
#[derive(Clone, Copy, Debug)]
struct Lookup {
    ts: u64,
    /// What is read from it, what is written to it; the same for a pipe.
    read: Option<u32>,
    write: Option<u32>,
}

/// Who wrote, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sender {
    pub tid: u32,
    pub vertex: u32,
    pub ts: u64,
}

/// What waits to be read: a pipe's contents, or what came to a socket.
#[derive(Debug, Default)]
struct Queue {
    /// A read takes one message, however many bytes.
    records: bool,
    /// With the bytes that are left of each.
    unread: VecDeque<(Sender, u64)>,
    /// Bytes that were read before the call that wrote them returned.
    ahead: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Messages {
    /// Queues by process and descriptor, in order of time.
    queues_of: FxHashMap<(u32, i32), Vec<Lookup>>,
    queues: Vec<Queue>,
    /// Calls on queues that threads are in.
    open: FxHashMap<u32, (Call, u32, Sender)>,
}

impl Messages {
    pub fn new(descriptors: &[DescriptorFact]) -> Messages {
        let mut messages = Messages::default();
        let mut numbers: FxHashMap<&str, u32> = FxHashMap::default();
        for fact in descriptors {
            let (read, write) = if fact.target.starts_with("pipe:") {
                (Some(&fact.target), Some(&fact.target))
            } else if fact.target.starts_with("socket:") {
                (Some(&fact.target), fact.peer.as_ref())
            } else {
                continue;
            };
            let queues = &mut messages.queues;
            let mut number = |name| {
                *numbers.entry(name).or_insert_with(|| {
                    queues.push(Queue::default());
                    queues.len() as u32 - 1
                })
            };
            let lookup = Lookup {
                ts: fact.ts,
                read: read.map(|name| number(name.as_str())),
                write: write.map(|name| number(name.as_str())),
            };
            for queue in [lookup.read, lookup.write].into_iter().flatten() {
                queues[queue as usize].records |= fact.records;
            }
            let known = messages.queues_of.entry((fact.pid, fact.fd)).or_default();
            known.push(lookup);
        }
        messages
    }

    fn queue_of(&self, pid: u32, call: Call, ts: u64) -> Option<u32> {
        let known = self.queues_of.get(&(pid, call.descriptor()?))?;
        let lookup = known.iter().find(|seen| seen.ts >= ts).or(known.last())?;
        if SEVERAL.contains(&call.number) {
            None
        } else if Call::sends(call.number) {
            lookup.write
        } else {
            lookup.read
        }
    }

    pub fn enter(&mut self, pid: u32, call: Call, sender: Sender) {
        match self.queue_of(pid, call, sender.ts) {
            Some(queue) => self.open.insert(sender.tid, (call, queue, sender)),
            None => self.open.remove(&sender.tid),
        };
    }

    /// A thread's call returns: of one that read, who wrote what it got.
    pub fn returned(&mut self, tid: u32, end: CallEnd) -> Vec<Sender> {
        let open = self.open.remove(&tid);
        let Some((_, queue, sender)) = open.filter(|(call, ..)| call.number == end.number) else {
            return Vec::new();
        };
        let Some(bytes) = u64::try_from(end.result).ok().filter(|bytes| *bytes > 0) else {
            return Vec::new();
        };
        if Call::sends(end.number) {
            self.queues[queue as usize].write(sender, bytes);
            return Vec::new();
        }
        let (mut found, missing) = self.queues[queue as usize].read(bytes);
        if missing > 0 {
            let writing = self
                .open
                .values()
                .find(|(call, other, _)| *other == queue && Call::sends(call.number));
            if let Some((.., writer)) = writing {
                found.push(*writer);
                self.queues[queue as usize].ahead += missing;
            }
        }
        found
    }
}

impl Queue {
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
        if self.records {
            bytes = self.unread.front().map_or(bytes, |(_, all)| *all);
        }
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
            peer: None,
            records: false,
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

    /// Process 1 and process 2 hold the ends of a pair of sockets, as descriptors 4 and 3.
    fn sockets(records: bool) -> Messages {
        let end = |pid, fd, own: &str, peer: &str| DescriptorFact {
            ts: 0,
            pid,
            fd,
            target: own.into(),
            peer: Some(peer.into()),
            records,
        };
        let ends = [
            end(1, 4, "socket:[8]", "socket:[9]"),
            end(2, 3, "socket:[9]", "socket:[8]"),
        ];
        Messages::new(&ends)
    }

    #[test]
    fn what_is_written_to_a_socket_is_read_at_the_other_end() {
        let mut messages = sockets(false);
        call(&mut messages, 1, WRITE, 10, 4);
        // Its own end has nothing to read.
        let sender = Sender {
            tid: 1,
            vertex: 11,
            ts: 1,
        };
        messages.enter(
            1,
            Call {
                number: READ,
                first: 4,
            },
            sender,
        );
        assert_eq!(end(&mut messages, 1, READ, 4).len(), 0);
        assert_eq!(call(&mut messages, 2, READ, 20, 4), [10]);
    }

    #[test]
    fn a_datagram_is_received_whole_even_where_it_is_cut() {
        let mut messages = sockets(true);
        for vertex in [10, 11] {
            call(&mut messages, 1, WRITE, vertex, 100);
        }
        assert_eq!(call(&mut messages, 2, READ, 20, 4), [10]);
        assert_eq!(call(&mut messages, 2, READ, 20, 100), [11]);
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
