// SPDX-License-Identifier: MIT
//! Messages that woke nobody: what lay in a pipe or socket before it was read leads from who wrote
//! it to who read it.
//!
//! In: entries and returns of calls (recorded with `--syscalls target`), what descriptors were.
//! Out: who wrote what a read got. Bytes are counted, or messages where each is received by itself,
//! so that of several messages those are found that were read. A socket's messages lie at its other
//! end. Blind spots: sockets whose other end is not known; bytes that lay there before the
//! recording, or were only looked at (MSG_PEEK); readers that are not recorded (of what they leave
//! behind, the oldest is forgotten).

use std::collections::VecDeque;

use flagfinder_events::{Call, CallEnd, DescriptorFact};
use flagfinder_linux::traits;
use rustc_hash::FxHashMap;

/// Most messages of a queue that are remembered; a queue's own room for bytes is less.
const MOST: usize = 4096;

/// Where a descriptor's messages lie. It is looked up no earlier than it is used.
#[derive(Clone, Copy, Debug)]
struct Lookup {
    ts: u64,
    /// The queue that is read, which also stands for the connection, and the queue that is written.
    /// A pipe has the same for both.
    read: u32,
    write: Option<u32>,
}

/// A call on a connection that a thread is in.
#[derive(Clone, Copy, Debug)]
struct Open {
    call: Call,
    lookup: Lookup,
    sender: Sender,
}

/// What a call has exchanged.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Sent {
        connection: u32,
    },
    /// `senders`: the threads that are known to have sent it.
    Received {
        connection: u32,
        senders: Vec<Sender>,
    },
}

/// Who wrote, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sender {
    pub tid: u32,
    pub vertex: u32,
    pub ts: u64,
}

/// What waits to be read: the contents of a pipe, or what came to a socket.
#[derive(Debug, Default)]
struct Queue {
    /// A read takes one message, however many bytes.
    records: bool,
    /// Processes that have one of its ends.
    ends: Vec<u32>,
    /// The messages, with the bytes that are left of each.
    unread: VecDeque<(Sender, u64)>,
    /// Bytes that were read before the call that wrote them returned.
    ahead: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Messages {
    /// Queues by process and descriptor, in order of time.
    queues_of: FxHashMap<(u32, i32), Vec<Lookup>>,
    queues: Vec<Queue>,
    open: FxHashMap<u32, Open>,
}

impl Messages {
    pub fn new(descriptors: &[DescriptorFact]) -> Messages {
        let mut messages = Messages::default();
        let mut numbers: FxHashMap<&str, u32> = FxHashMap::default();
        for fact in descriptors {
            let write = if fact.target.starts_with("pipe:") {
                Some(&fact.target)
            } else if fact.target.starts_with("socket:") {
                fact.peer.as_ref()
            } else {
                continue;
            };
            let queues = &mut messages.queues;
            let mut number = |name| {
                let number = *numbers.entry(name).or_insert_with(|| {
                    queues.push(Queue::default());
                    queues.len() as u32 - 1
                });
                let queue = &mut queues[number as usize];
                queue.records |= fact.records;
                if !queue.ends.contains(&fact.pid) {
                    queue.ends.push(fact.pid);
                }
                number
            };
            let lookup = Lookup {
                ts: fact.ts,
                read: number(&fact.target),
                write: write.map(|name| number(name)),
            };
            let known = messages.queues_of.entry((fact.pid, fact.fd)).or_default();
            known.push(lookup);
        }
        for known in messages.queues_of.values_mut() {
            // A fact that was found later about the same descriptor stands behind the first, and is
            // complete.
            known.reverse();
            known.sort_by_key(|lookup| lookup.ts);
            known.dedup_by_key(|lookup| lookup.ts);
        }
        messages
    }

    fn lookup(&self, pid: u32, call: Call, ts: u64) -> Option<Lookup> {
        let known = self.queues_of.get(&(pid, call.descriptor()?))?;
        let exchanges = Call::receives(call.number) || Call::sends(call.number);
        let later = known.partition_point(|seen| seen.ts < ts);
        let lookup = known.get(later).or(known.last());
        lookup.copied().filter(|_| exchanges)
    }

    pub fn enter(&mut self, pid: u32, call: Call, sender: Sender) {
        match self.lookup(pid, call, sender.ts) {
            Some(lookup) => self.open.insert(
                sender.tid,
                Open {
                    call,
                    lookup,
                    sender,
                },
            ),
            None => self.open.remove(&sender.tid),
        };
    }

    /// A thread's call returns: what it exchanged, if anything.
    pub fn returned(&mut self, tid: u32, end: CallEnd) -> Option<Message> {
        let open = self.open.remove(&tid)?;
        let bytes = u64::try_from(end.result).ok().filter(|bytes| *bytes > 0)?;
        if open.call.number != end.number {
            return None;
        }
        let connection = open.lookup.read;
        let is_counted = !traits::counts_messages(end.number.into());
        if Call::receives(end.number) {
            let senders = if is_counted {
                self.read(connection, bytes)
            } else {
                Vec::new()
            };
            return Some(Message::Received {
                connection,
                senders,
            });
        }
        if let Some(queue) = open.lookup.write.filter(|_| is_counted) {
            self.queues[queue as usize].write(open.sender, bytes);
        }
        Some(Message::Sent { connection })
    }

    /// Who sent so many bytes.
    fn read(&mut self, queue: u32, bytes: u64) -> Vec<Sender> {
        let (mut found, missing) = self.queues[queue as usize].read(bytes);
        if missing > 0 {
            let is_writing = |open: &&Open| {
                open.lookup.write == Some(queue) && !Call::receives(open.call.number)
            };
            if let Some(writing) = self.open.values().find(is_writing) {
                found.push(writing.sender);
                self.queues[queue as usize].ahead += missing;
            }
        }
        found
    }

    /// Whether two connections of process `own` may have the same peer: the same process is at
    /// their other ends.
    pub fn may_share(&self, own: u32, one: u32, other: u32) -> bool {
        let [one_s, other_s] = [one, other].map(|number| &self.queues[number as usize].ends);
        let is_peer = |pid: &&u32| **pid != own && other_s.contains(pid);
        one == other || one_s.iter().any(|pid| is_peer(&pid))
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

    /// The senders of so many bytes, each vertex once, and how many bytes have no known sender.
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
            ..DescriptorFact::default()
        };
        Messages::new(&[end(1, 4), end(2, 3)])
    }

    fn begin(messages: &mut Messages, tid: u32, number: u16, vertex: u32) {
        let first = if number == READ { 3 } else { 4 };
        let sender = Sender { tid, vertex, ts: 1 };
        messages.enter(tid, Call { number, first }, sender);
    }

    fn end(messages: &mut Messages, tid: u32, number: u16, result: i64) -> Vec<u32> {
        match messages.returned(tid, CallEnd { number, result }) {
            Some(Message::Received { senders, .. }) => senders.iter().map(|s| s.vertex).collect(),
            _ => Vec::new(),
        }
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
            ..DescriptorFact::default()
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
    fn a_descriptor_is_what_it_was_then() {
        let fact = |ts, pid, fd, target: &str, peer: Option<&str>| DescriptorFact {
            ts,
            pid,
            fd,
            target: target.into(),
            peer: peer.map(str::to_owned),
            ..DescriptorFact::default()
        };
        // The other end of the first was found later; the number was another pipe's before.
        let mut messages = Messages::new(&[
            fact(1, 1, 4, "socket:[8]", None),
            fact(9, 1, 4, "pipe:[7]", None),
            fact(1, 2, 3, "socket:[9]", Some("socket:[8]")),
            fact(1, 1, 4, "socket:[8]", Some("socket:[9]")),
        ]);
        call(&mut messages, 1, WRITE, 10, 4);
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
    fn a_writer_that_is_still_in_its_call_has_sent_once() {
        let mut messages = messages();
        begin(&mut messages, 1, WRITE, 10);
        assert_eq!(call(&mut messages, 2, READ, 20, 4), [10]);
        end(&mut messages, 1, WRITE, 4);
        assert_eq!(call(&mut messages, 2, READ, 20, 4).len(), 0);
    }

    #[test]
    fn a_call_that_only_asks_about_a_pipe_takes_nothing_out() {
        const FCNTL: u16 = 72;
        let mut messages = messages();
        call(&mut messages, 1, WRITE, 10, 4);
        let first = 3;
        let sender = Sender {
            tid: 2,
            vertex: 20,
            ts: 1,
        };
        let number = FCNTL;
        messages.enter(2, Call { number, first }, sender);
        assert_eq!(messages.returned(2, CallEnd { number, result: 2 }), None);
        assert_eq!(call(&mut messages, 2, READ, 20, 4), [10]);
    }

    #[test]
    fn connections_share_a_peer_where_another_process_has_ends_of_both() {
        let end = |pid, fd, pipe: &str| DescriptorFact {
            ts: 0,
            pid,
            fd,
            target: pipe.into(),
            ..DescriptorFact::default()
        };
        let (one, two, three) = ("pipe:[1]", "pipe:[2]", "pipe:[3]");
        let ends = [
            (9, 1, one),
            (9, 2, two),
            (9, 3, three),
            (5, 1, one),
            (5, 2, two),
            (6, 1, three),
        ];
        let messages = Messages::new(&ends.map(|(pid, fd, pipe)| end(pid, fd, pipe)));
        let shared = [(0, 1), (0, 2), (1, 2), (2, 2)].map(|(a, b)| messages.may_share(9, a, b));
        assert_eq!(shared, [true, false, false, true]);
    }
}
