// SPDX-License-Identifier: MIT
//! Stalker's blocks on their way into its cache.
//!
//! One block of Stalker's becomes one block of ours, or several: ours end at system calls.

use std::sync::atomic::{AtomicUsize, Ordering};

use flagfinder_trace::protocol::SlotRecord;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory};

use crate::emit::{self, Code, Holes, ValuesTop};
use crate::handlers::{self, Share, Site};
use crate::slots::{self, Capture, Source};
use crate::thread::Thread;
use crate::{meta, sys};

type Next = unsafe extern "C" fn(*mut u8, *mut *const u8) -> i32;
type Keep = unsafe extern "C" fn(*mut u8);
type PutBytes = unsafe extern "C" fn(*mut u8, *const u8, u32);
type Here = unsafe extern "C" fn(*mut u8) -> *mut u8;

static FUNCTIONS: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];
/// Where `address` stands in Capstone's instruction: 8 in its version 5, 16 in 6.
static ADDRESS_AT: AtomicUsize = AtomicUsize::new(0);
/// A slot's instruction has one byte.
const MOST_INSTRUCTIONS: u16 = 255;

pub fn use_functions(addresses: &[usize]) {
    for (place, address) in FUNCTIONS.iter().zip(addresses) {
        place.store(*address, Ordering::Release);
    }
}

/// Stalker's hands: its iterator and where it writes.
struct Stalker {
    iterator: *mut u8,
    writer: *mut u8,
}

impl Stalker {
    fn function(index: usize) -> usize {
        FUNCTIONS[index].load(Ordering::Relaxed)
    }

    /// The next instruction: its address and bytes.
    fn next(&self) -> Option<(u64, &[u8])> {
        let mut instruction = std::ptr::null();
        // SAFETY: the function that the agent looked up.
        unsafe {
            let next = std::mem::transmute::<usize, Next>(Self::function(0));
            if next(self.iterator, &mut instruction) == 0 {
                return None;
            }
            let (address, size) = read_instruction(instruction);
            let bytes = instruction.add(ADDRESS_AT.load(Ordering::Relaxed) + 10);
            Some((address, std::slice::from_raw_parts(bytes, size)))
        }
    }

    fn keep(&self) {
        // SAFETY: as in `next`.
        unsafe { std::mem::transmute::<usize, Keep>(Self::function(1))(self.iterator) }
    }

    /// Returns where the bytes were put.
    fn put(&self, bytes: &[u8]) -> *mut u8 {
        // SAFETY: as in `next`.
        unsafe {
            let at = std::mem::transmute::<usize, Here>(Self::function(3))(self.writer);
            std::mem::transmute::<usize, PutBytes>(Self::function(2))(
                self.writer,
                bytes.as_ptr(),
                bytes.len() as u32,
            );
            at
        }
    }
}

/// (address, size)
unsafe fn read_instruction(instruction: *const u8) -> (u64, usize) {
    let read = |at: usize| {
        let address = (instruction.add(at) as *const u64).read_unaligned();
        let size = (instruction.add(at + 8) as *const u16).read_unaligned();
        (address, usize::from(size))
    };
    let known = ADDRESS_AT.load(Ordering::Relaxed);
    if known != 0 {
        return read(known);
    }
    for at in [8, 16] {
        let (address, size) = read(at);
        let mut memory = [0; 15];
        if !(1..=15).contains(&size) || sys::peek(address, &mut memory[..size]) != size {
            continue;
        }
        if std::slice::from_raw_parts(instruction.add(at + 10), size) == &memory[..size] {
            ADDRESS_AT.store(at, Ordering::Relaxed);
            return (address, size);
        }
    }
    // Neither: what is recorded would be wrong.
    (0, 0)
}

/// A block of ours that is being made.
struct Open {
    pc: u64,
    code: Vec<u8>,
    instructions: u16,
    holes: Holes,
    top: *mut u8,
    values: Option<OpenValues>,
}

/// What it has in VALUES.
struct OpenValues {
    top: ValuesTop,
    at: *mut u8,
    share: *mut Share,
    slots: Vec<SlotRecord>,
    bytes: usize,
    /// Of the instruction before, which has to be executed first.
    later: Vec<Capture>,
}

/// So many bytes of values a block has at most.
const MOST_BYTES: usize = 4096;

impl OpenValues {
    fn begin(stalker: &Stalker, thread: *mut Thread) -> Option<OpenValues> {
        // SAFETY: a thread of ours; its window does not change while it lives.
        let end = unsafe { (*thread).values.end };
        if end == 0 {
            return None;
        }
        let share = Box::into_raw(Box::new(Share {
            thread,
            bytes: 0,
            unit: 0,
        }));
        let mut code = Code::default();
        let high = (end >> 32) as u32;
        let top = emit::values_top(&mut code, thread, high, handlers::values_full, share as u64);
        Some(OpenValues {
            top,
            at: stalker.put(&code.0),
            share,
            slots: Vec::new(),
            bytes: 0,
            later: Vec::new(),
        })
    }

    fn capture(&mut self, stalker: &Stalker, thread: *mut Thread, capture: &Capture) {
        if self.bytes + 8 > MOST_BYTES {
            return;
        }
        let mut code = Code::default();
        emit::capture(&mut code, thread, capture, self.bytes as u32);
        stalker.put(&code.0);
        self.bytes += usize::from(capture.slot.size);
        self.slots.push(capture.slot);
    }

    /// What the instruction before left in registers.
    fn capture_later(&mut self, stalker: &Stalker, thread: *mut Thread) {
        for capture in std::mem::take(&mut self.later) {
            self.capture(stalker, thread, &capture);
        }
    }

    /// Emits what runs in front of an instruction.
    fn look_at(
        &mut self,
        stalker: &Stalker,
        thread: *mut Thread,
        instruction: &Instruction,
        factory: &mut InstructionInfoFactory,
        index: u8,
    ) {
        self.capture_later(stalker, thread);
        for capture in slots::captures(instruction, index, factory) {
            match capture.source {
                Source::Memory(_) => self.capture(stalker, thread, &capture),
                Source::Register(_) => self.later.push(capture),
            }
        }
        if instruction.flow_control() != FlowControl::Next {
            self.later.clear();
        }
    }

    fn end(self, unit: usize) {
        // SAFETY: the block is not executed before this transformation has ended.
        unsafe {
            self.top.fill(self.at, self.bytes);
            (*self.share).bytes = self.bytes;
            (*self.share).unit = unit;
        }
    }
}

impl Open {
    fn begin(stalker: &Stalker, thread: *mut Thread, pc: u64) -> Open {
        let mut code = Code::default();
        let holes = emit::flow_top(&mut code, thread, handlers::full);
        let top = stalker.put(&code.0);
        Open {
            pc,
            code: Vec::new(),
            instructions: 0,
            holes,
            top,
            values: OpenValues::begin(stalker, thread),
        }
    }

    fn end(mut self, stalker: &Stalker, thread: *mut Thread) {
        if let Some(values) = &mut self.values {
            values.capture_later(stalker, thread);
        }
        let slots = self.values.as_ref().map_or(&[][..], |values| &values.slots);
        let id = meta::block_id(self.pc, &self.code, self.instructions, slots);
        // SAFETY: the block is not executed before this transformation has ended.
        let unit = unsafe { self.holes.fill(self.top, id) };
        if let Some(values) = self.values {
            values.end(unit);
        }
    }
}

/// Called by Stalker for each block: its iterator, its output, the thread that will run it.
///
/// # Safety
/// The arguments are Stalker's and a thread of ours.
#[no_mangle]
pub unsafe extern "C" fn ff_transform(
    iterator: *mut u8,
    output: *const *mut u8,
    thread: *mut Thread,
) {
    let stalker = Stalker {
        iterator,
        writer: *output,
    };
    (*thread).compiled.store(true, Ordering::Release);
    let mut open: Option<Open> = None;
    let mut factory = InstructionInfoFactory::new();
    let mut skip = None;
    while let Some((address, bytes)) = stalker.next() {
        let is_first = skip.is_none();
        if *skip.get_or_insert_with(|| address == 0 || meta::is_foreign(address)) {
            if is_first {
                let mut code = Code::default();
                code.call(handlers::away, thread as u64);
                stalker.put(&code.0);
            }
            stalker.keep();
            continue;
        }
        let block = open.get_or_insert_with(|| Open::begin(&stalker, thread, address));
        let instruction = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
        let known = !instruction.is_invalid();
        if let Some(values) = block.values.as_mut().filter(|_| known) {
            let index = block.instructions as u8;
            values.look_at(&stalker, thread, &instruction, &mut factory, index);
        }
        block.code.extend_from_slice(bytes);
        block.instructions += 1;
        let is_call = bytes == [0x0f, 0x05];
        let is_long = block.instructions == MOST_INSTRUCTIONS;
        if is_call {
            let site = Box::leak(Box::new(Site {
                thread,
                next: address + bytes.len() as u64,
            }));
            let mut code = Code::default();
            code.call(handlers::enter, site as *const Site as u64)
                .system_call(thread)
                .call(handlers::leave, thread as u64);
            stalker.put(&code.0);
        } else if let Some(code) = known
            .then(|| emit::without_rip(&instruction, &mut factory, thread))
            .flatten()
        {
            stalker.put(&code.0);
        } else {
            stalker.keep();
        }
        if is_call || is_long {
            if let Some(block) = open.take() {
                block.end(&stalker, thread);
            }
        }
    }
    if let Some(block) = open {
        block.end(&stalker, thread);
    }
}
