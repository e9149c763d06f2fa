//! From blocks of single CPUs to one stream in order of time.
//!
//! A thread for each CPU decodes its blocks ahead; memory goes round between it and the merge, so that none is asked for on the way.

use std::sync::mpsc::{channel, sync_channel, Receiver, Sender};
use std::thread::Scope;

use crate::columns;
use crate::container::{Block, Loader, Storage};
use crate::error::{damaged, EventsError, Result};
use crate::event::Event;

/// Decoded blocks that wait for the merge, by CPU.
const AHEAD: usize = 2;

/// The events of one CPU.
pub(crate) struct Stream {
    decoded: Receiver<Result<Vec<Event>>>,
    /// Takes back the memory of blocks that are done.
    done: Sender<Vec<Event>>,
    events: Vec<Event>,
    next: usize,
}

fn decode(loader: &mut Loader, block: &Block, events: &mut Vec<Event>) -> Result<()> {
    let header = &block.header;
    let raw = loader.load(block)?;
    columns::decode(
        raw,
        header.count as usize,
        header.cpu,
        header.first_ts,
        events,
    )
    .ok_or_else(|| damaged(block.payload_offset, "columns that do not fit together"))
}

impl Stream {
    /// Begins to decode `blocks`, which are in order of time.
    pub fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        storage: &'scope Storage,
        blocks: &'scope [Block],
    ) -> Stream {
        let (sender, decoded) = sync_channel(AHEAD);
        let (done, spare) = channel::<Vec<Event>>();
        scope.spawn(move || {
            let mut loader = match Loader::new(storage) {
                Ok(loader) => loader,
                Err(error) => return drop(sender.send(Err(error))),
            };
            for block in blocks {
                let mut events = spare.try_recv().unwrap_or_default();
                let decoded = decode(&mut loader, block, &mut events).map(|()| events);
                if sender.send(decoded).is_err() {
                    break;
                }
            }
        });
        Stream {
            decoded,
            done,
            events: Vec::new(),
            next: 0,
        }
    }

    /// The time of the next event; `None` at the end.
    fn head(&mut self, bad: &mut Vec<EventsError>) -> Option<u64> {
        while self.next >= self.events.len() {
            match self.decoded.recv().ok()? {
                Ok(events) => {
                    let before = std::mem::replace(&mut self.events, events);
                    self.next = 0;
                    // The decoder has ended: nobody needs it.
                    let _ = self.done.send(before);
                }
                Err(error) => bad.push(error),
            }
        }
        Some(self.events[self.next].ts)
    }
}

/// Streams that still have events, and the time of the next one of each.
pub(crate) struct Merge {
    streams: Vec<Stream>,
    heads: Vec<u64>,
    bad: Vec<EventsError>,
}

impl Merge {
    pub fn new(streams: impl Iterator<Item = Stream>) -> Merge {
        let mut merge = Merge {
            streams: Vec::new(),
            heads: Vec::new(),
            bad: Vec::new(),
        };
        // All begin to decode before the first is waited for.
        for mut stream in streams.collect::<Vec<_>>() {
            if let Some(head) = stream.head(&mut merge.bad) {
                merge.heads.push(head);
                merge.streams.push(stream);
            }
        }
        merge
    }

    /// The stream that comes next, and the time up to which it does.
    fn next(&self) -> Option<(usize, u64)> {
        let mut heads = self.heads.iter().copied().enumerate();
        let (mut first, mut ts) = heads.next()?;
        let mut until = u64::MAX;
        for (index, head) in heads {
            if head < ts {
                // Of equal times those of the first CPU come first.
                until = ts - 1;
                (first, ts) = (index, head);
            } else {
                until = until.min(head);
            }
        }
        Some((first, until))
    }

    /// Hands out all events; returns the blocks that were left out.
    pub fn run(mut self, take: &mut impl FnMut(&Event)) -> Vec<EventsError> {
        while let Some((first, until)) = self.next() {
            let stream = &mut self.streams[first];
            for event in &stream.events[stream.next..] {
                if event.ts > until {
                    break;
                }
                take(event);
                stream.next += 1;
            }
            match stream.head(&mut self.bad) {
                Some(head) => self.heads[first] = head,
                None => {
                    self.streams.remove(first);
                    self.heads.remove(first);
                }
            }
        }
        self.bad
    }
}
