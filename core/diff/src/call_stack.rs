// SPDX-License-Identifier: MIT
//! A shadow call stack over one thread's flow, one block at a time.
//!
//! The flow has no stack pointers, so calls and returns are paired by return address. What breaks
//! the pairing is mended by looking for a frame the new address belongs to: a frame that returns
//! there (missing returns, unwinding, coroutine switches), then a frame whose function it lies in
//! (longjmp, exceptions). Memory is bounded by [`DEPTH_LIMIT`] frames and [`PARKED_LIMIT`] stacks.
//!
//! Blind spots: a tail call keeps the frame of the function it left; a return that is used as a
//! jump opens a new stack until something returns into the old one.

use crate::input::Event;
use crate::space::{BlockFacts, ExitKind, PlaceId, Program, NO_PLACE};

/// Most frames kept; beyond it the outermost half is forgotten.
pub const DEPTH_LIMIT: usize = 1 << 18;
/// Most stacks kept besides the running one.
pub const PARKED_LIMIT: usize = 64;
/// How far down the running stack a frame is looked for.
const OPEN_SEARCH: usize = 1024;
/// How far down a parked stack a return address is looked for.
const PARKED_SEARCH: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// The outermost known frame of a stack.
    Root,
    Call,
    /// A signal handler; `call_site` is what it interrupted.
    Signal,
}

/// One open call.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Why it exists.
    pub kind: FrameKind,
    /// Observers' own mark; 0 when entered.
    pub tag: u32,
    /// Observers' own place for what they keep of the frame; 0 when entered.
    pub slot: u32,
    /// Node of the calling block; [`NO_PLACE`] for a root.
    pub call_site: PlaceId,
    pub entry: PlaceId,
    pub function: u32,
    /// Node that was executed last in this frame itself.
    pub node: PlaceId,
    /// Function of that node (another one after a tail call).
    pub node_function: u32,
    pub node_region: u32,
    /// Where the call returns to.
    pub return_to: u64,
    /// Hash of the chain of call sites and functions from the root.
    pub context: u64,
    /// Number of the frame within the thread, from 1.
    pub serial: u64,
    /// Index of the frame's first block in the thread's flow.
    pub entered: u64,
}

/// Sees what the stack does. Indexes count the thread's blocks from 0.
pub trait Observer {
    /// The last frame of `stack` was opened.
    fn enter(&mut self, _stack: &mut [Frame], _index: u64) {}
    /// The last frame of `stack` closes.
    fn leave(&mut self, _stack: &[Frame], _index: u64) {}
    /// In the last frame of `stack`, control went from node `from` ([`NO_PLACE`] when it just began
    /// or was moved) to the block `to`. A call and everything in it is one such step.
    fn step(&mut self, _stack: &[Frame], _from: PlaceId, _to: &BlockFacts, _index: u64) {}
    /// Another stack runs now.
    fn switch(&mut self, _index: u64) {}
}

/// Mixes two words into one (xxh3's avalanche constants, Moremur-like finish).
#[inline]
pub fn mix(a: u64, b: u64) -> u64 {
    let mut hash = (a ^ b.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b;
    hash ^= hash >> 32;
    hash = hash.wrapping_mul(0x1656_67b1_9e37_79f9);
    hash ^ (hash >> 29)
}

pub struct CallStack<'a> {
    program: &'a Program,
    frames: Vec<Frame>,
    parked: Vec<Vec<Frame>>,
    previous: BlockFacts,
    /// No edge from `previous`: control was moved.
    moved: bool,
    /// A handler just ended.
    resumed: bool,
    signal: bool,
    /// What each open handler interrupted: the block before it, and whether control had been moved.
    interrupted: Vec<(BlockFacts, bool)>,
    serial: u64,
    index: u64,
    mended: u64,
}

impl<'a> CallStack<'a> {
    /// An empty stack over the blocks of one process.
    pub fn new(program: &'a Program) -> CallStack<'a> {
        CallStack {
            program,
            frames: Vec::with_capacity(256),
            parked: Vec::new(),
            previous: *program.facts(0),
            moved: true,
            resumed: false,
            signal: false,
            interrupted: Vec::new(),
            serial: 0,
            index: 0,
            mended: 0,
        }
    }

    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    pub fn index(&self) -> u64 {
        self.index
    }

    pub fn opened(&self) -> u64 {
        self.serial
    }

    /// Takes so many blocks and frames as seen that left the stack as it is (see `cycle.rs`).
    /// Frames keep the serial that they would have had, so that scans agree on them.
    pub fn jump(&mut self, blocks: u64, opened: u64) {
        self.index += blocks;
        self.serial += opened;
    }

    /// How often calls and returns did not pair.
    pub fn mended(&self) -> u64 {
        self.mended
    }

    #[inline]
    pub fn block<O: Observer>(&mut self, id: u32, observer: &mut O) {
        let next = *self.program.facts(id);
        if self.resumed {
            self.resumed = false;
            // In the middle of the interrupted block: no step of its own.
            self.moved |= (self.previous.start..self.previous.end).contains(&next.start)
                && next.end == self.previous.end;
        }
        if self.moved || self.signal || self.frames.is_empty() {
            self.enter_abruptly(&next, observer);
        } else {
            match self.previous.exit {
                ExitKind::Plain | ExitKind::Conditional => {}
                ExitKind::Call => self.push(
                    FrameKind::Call,
                    self.previous.node,
                    self.previous.end,
                    &next,
                    observer,
                ),
                ExitKind::Return => match self.frames.last() {
                    Some(top) if top.return_to == next.start && top.kind == FrameKind::Call => {
                        self.pop(observer)
                    }
                    _ => self.mend(&next, true, observer),
                },
                ExitKind::IndirectJump => {
                    // A jump into another function's middle: longjmp, or a switch of stacks.
                    if next.return_point && next.region != self.previous.region {
                        self.mend(&next, false, observer);
                    }
                }
            }
        }
        self.step_to(&next, observer);
    }

    #[inline]
    fn step_to<O: Observer>(&mut self, next: &BlockFacts, observer: &mut O) {
        let from = match self.frames.last_mut() {
            Some(top) => {
                let from = std::mem::replace(&mut top.node, next.node);
                top.node_function = next.function;
                top.node_region = next.region;
                from
            }
            None => return,
        };
        let from = if self.moved { NO_PLACE } else { from };
        observer.step(&self.frames, from, next, self.index);
        self.moved = false;
        self.previous = *next;
        self.index += 1;
    }

    /// Something else happened in the flow.
    pub fn event<O: Observer>(&mut self, event: Event, observer: &mut O) {
        match event {
            Event::Signal { .. } => self.signal = true,
            Event::SignalReturn => {
                if let Some(depth) = self
                    .frames
                    .iter()
                    .rposition(|frame| frame.kind == FrameKind::Signal)
                {
                    self.pop_to(depth, observer);
                }
                // The step from the block before the signal to the one behind it is made now.
                (self.previous, self.moved) =
                    self.interrupted.pop().unwrap_or((self.previous, true));
                self.resumed = true;
            }
            Event::Moved => self.moved = true,
            Event::CalledOver => {
                // The call itself opened no frame: a jump did, in a frame that ends.
                self.previous.exit = match self.previous.exit {
                    ExitKind::Call => ExitKind::Plain,
                    _ => ExitKind::Return,
                };
            }
            Event::Start { .. }
            | Event::Exec
            | Event::Exit { .. }
            | Event::Clock { .. }
            | Event::SyscallEnter { .. }
            | Event::SyscallExit { .. } => {}
        }
    }

    #[cold]
    fn enter_abruptly<O: Observer>(&mut self, next: &BlockFacts, observer: &mut O) {
        if self.frames.is_empty() {
            self.signal = false;
            self.push(FrameKind::Root, NO_PLACE, 0, next, observer);
        } else if std::mem::take(&mut self.signal) {
            let interrupted = self.frames.last().map_or(NO_PLACE, |top| top.node);
            if self.interrupted.len() == DEPTH_LIMIT {
                self.interrupted.clear();
            }
            self.interrupted.push((self.previous, self.moved));
            self.moved = true;
            self.push(FrameKind::Signal, interrupted, 0, next, observer);
        } else if let Some(depth) = self.frame_around(next) {
            self.pop_to(depth + 1, observer);
        } else if let Some(depth) = self
            .frames
            .iter()
            .rposition(|frame| frame.return_to == next.start)
        {
            self.pop_to(depth, observer);
        }
    }

    /// Control went where no frame expects it; finds the frame it belongs to.
    #[cold]
    fn mend<O: Observer>(&mut self, next: &BlockFacts, by_return: bool, observer: &mut O) {
        self.mended += 1;
        let target = next.start;
        let returns = |frame: &Frame| frame.return_to == target && frame.kind == FrameKind::Call;
        let floor = self.frames.len().saturating_sub(OPEN_SEARCH);
        if let Some(depth) = self.frames[floor..].iter().rposition(returns) {
            self.pop_to(floor + depth, observer);
            return;
        }
        let parked = self
            .parked
            .iter()
            .enumerate()
            .rev()
            .find_map(|(number, frames)| {
                let floor = frames.len().saturating_sub(PARKED_SEARCH);
                frames[floor..]
                    .iter()
                    .rposition(returns)
                    .map(|depth| (number, floor + depth))
            });
        if let Some((number, depth)) = parked {
            let resumed = self.parked.remove(number);
            let left = std::mem::replace(&mut self.frames, resumed);
            self.park(left, observer);
            observer.switch(self.index);
            self.pop_to(depth, observer);
            return;
        }
        if by_return
            && self
                .frames
                .last()
                .is_some_and(|top| top.kind == FrameKind::Signal)
        {
            return; // to the restorer, which calls sigreturn
        }
        if let Some(depth) = self.frame_around(next) {
            self.pop_to(depth + 1, observer);
            return;
        }
        if self.frames.len() == 1 {
            // The recording began inside the function that returns here.
            self.pop_to(0, observer);
        } else {
            let left = std::mem::take(&mut self.frames);
            self.park(left, observer);
            observer.switch(self.index);
        }
        self.push(FrameKind::Root, NO_PLACE, 0, next, observer);
    }

    /// The innermost frame whose code `next` belongs to: by direct branches, else by address.
    fn frame_around(&self, next: &BlockFacts) -> Option<usize> {
        let floor = self.frames.len().saturating_sub(OPEN_SEARCH);
        let open = &self.frames[floor..];
        open.iter()
            .rposition(|frame| {
                frame.node_function == next.function || frame.function == next.function
            })
            .or_else(|| {
                open.iter()
                    .rposition(|frame| frame.node_region == next.region)
            })
            .map(|depth| floor + depth)
    }

    fn park<O: Observer>(&mut self, frames: Vec<Frame>, observer: &mut O) {
        if self.parked.len() == PARKED_LIMIT {
            let mut oldest = self.parked.remove(0);
            while !oldest.is_empty() {
                observer.leave(&oldest, self.index);
                oldest.pop();
            }
        }
        self.parked.push(frames);
    }

    #[inline]
    fn push<O: Observer>(
        &mut self,
        kind: FrameKind,
        call_site: PlaceId,
        return_to: u64,
        next: &BlockFacts,
        observer: &mut O,
    ) {
        if self.frames.len() >= DEPTH_LIMIT {
            self.forget_outermost(observer);
        }
        self.serial += 1;
        let parent = self.frames.last().map_or(0, |frame| frame.context);
        let link = (u64::from(call_site) << 32) | u64::from(next.function);
        self.frames.push(Frame {
            kind,
            tag: 0,
            slot: 0,
            call_site,
            entry: next.first,
            function: next.function,
            node: NO_PLACE,
            node_function: next.function,
            node_region: next.region,
            return_to,
            context: mix(parent, link),
            serial: self.serial,
            entered: self.index,
        });
        observer.enter(&mut self.frames, self.index);
    }

    #[inline]
    fn pop<O: Observer>(&mut self, observer: &mut O) {
        observer.leave(&self.frames, self.index);
        self.frames.pop();
    }

    fn pop_to<O: Observer>(&mut self, depth: usize, observer: &mut O) {
        while self.frames.len() > depth {
            self.pop(observer);
        }
    }

    #[cold]
    fn forget_outermost<O: Observer>(&mut self, observer: &mut O) {
        let kept = self.frames.split_off(DEPTH_LIMIT / 2);
        let mut forgotten = std::mem::replace(&mut self.frames, kept);
        while !forgotten.is_empty() {
            observer.leave(&forgotten, self.index);
            forgotten.pop();
        }
    }
}
