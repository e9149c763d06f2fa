// SPDX-License-Identifier: MIT
//! A followed thread: where its compiled blocks write, and the events in its flow.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use bytemuck::{bytes_of, Pod};
use flagfinder_trace::protocol::{self as p, Record};

use crate::memory::Lock;
use crate::pool::{self, Buffer};
use crate::stub::Context;
use crate::sys;

/// Compiled blocks use the first fields by their offsets.
#[repr(C)]
pub struct Thread {
    /// The program's values of registers that a block's top borrows.
    pub rax: u64,
    pub rcx: u64,
    /// Where the next unit of flow goes.
    pub flow_at: usize,
    /// A value on its way into VALUES.
    pub value: u64,
    /// Where the next block's values go.
    pub values_at: usize,
    /// Where the values of the running block began.
    pub block_at: usize,
    /// Not zero: the system call that is being made creates a thread or process.
    pub clones: u64,
    /// The program's value of a register that stands in for rip.
    pub stand_in: u64,
    pub tid: u32,
    pub creator: u32,
    /// Of the system call entered last.
    pub number: u32,
    /// See `handlers`: 1 once Stalker has it.
    pub followed: AtomicU32,
    /// Stalker has asked for a block of it.
    pub compiled: AtomicBool,
    started: bool,
    /// The program's first thread, from its start.
    is_first: bool,
    pub flow: Buffer,
    pub values: Buffer,
    /// Bytes in a chunk of values that ended with its chunk of flow, and is to be replaced.
    retired: Option<usize>,
    /// `flow_at` as it was when control went elsewhere.
    away_at: usize,
}

pub const RAX: u8 = 0;
pub const RCX: u8 = 8;
pub const FLOW_AT: u8 = 16;
pub const VALUE: u8 = 24;
pub const VALUES_AT: u8 = 32;
pub const BLOCK_AT: u8 = 40;
pub const CLONES: usize = 48;
pub const STAND_IN: u8 = 56;
const _: () = assert!(std::mem::offset_of!(Thread, clones) == CLONES);
const _: () = assert!(std::mem::offset_of!(Thread, value) == VALUE as usize);
const _: () = assert!(std::mem::offset_of!(Thread, stand_in) == STAND_IN as usize);

struct Address(*mut Thread);
// SAFETY: only compared and reused under the lock.
unsafe impl Send for Address {}

/// Threads that have ended. Their last instructions may still be on the way to the kernel.
static ENDED: Lock<Vec<Address>> = Lock::new(Vec::new());

fn is_gone(tid: u32) -> bool {
    sys::call3(sys::TGKILL, sys::pid() as usize, tid as usize, 0) == -sys::ESRCH
}

impl Thread {
    /// Null: no memory or address space.
    pub fn create(tid: u32, creator: u32, is_first: bool) -> *mut Thread {
        let Some(flow) = Buffer::new() else {
            return std::ptr::null_mut();
        };
        let values = if pool::with_values() {
            Buffer::new().unwrap_or(Buffer::none())
        } else {
            Buffer::none()
        };
        let thread = Thread {
            rax: 0,
            rcx: 0,
            // The first unit fills this, so the thread begins in `next_flow`.
            flow_at: flow.end - 2,
            value: 0,
            values_at: values.end,
            block_at: values.end,
            clones: 0,
            stand_in: 0,
            tid,
            creator,
            number: 0,
            followed: AtomicU32::new(0),
            compiled: AtomicBool::new(false),
            started: false,
            is_first,
            flow,
            values,
            retired: None,
            away_at: 0,
        };
        let mut ended = ENDED.hold();
        // SAFETY: what is in the list is nobody else's once the kernel's thread is gone.
        let free = ended
            .iter()
            .position(|old| unsafe { is_gone((*old.0).tid) });
        match free {
            Some(index) => {
                let old = ended.swap_remove(index).0;
                // SAFETY: as above; its windows are gone, so nothing is to be dropped.
                unsafe { old.write(thread) };
                old
            }
            None => Box::into_raw(Box::new(thread)),
        }
    }

    fn used(&self) -> usize {
        self.flow_at - self.flow.base()
    }

    /// The unit that was just written filled the chunk, or was the thread's first. `sp`: the
    /// program's stack pointer.
    pub fn next_flow(&mut self, sp: u64) {
        let over = self.flow_at - self.flow.end;
        let mut unit = [0u8; 4];
        let mut pending = 0;
        if !self.started || over != 0 {
            pending = 2 + over;
            // SAFETY: the window and the page behind it.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    (self.flow.end - 2) as *const u8,
                    unit.as_mut_ptr(),
                    pending,
                );
            }
        }
        let used = if self.started {
            self.flow_at - over - self.flow.base() - if over != 0 { 2 } else { 0 }
        } else {
            0
        };
        self.renew_flow(used);
        self.start(sp);
        // SAFETY: a fresh chunk has room.
        unsafe {
            std::ptr::copy_nonoverlapping(unit.as_ptr(), self.flow_at as *mut u8, pending);
        }
        self.flow_at += pending;
    }

    fn renew_flow(&mut self, used: usize) {
        let lost = if self.started && !self.flow.has_chunk() {
            used
        } else {
            0
        };
        // A chunk of values ends with the chunk of flow: each is a checkpoint, so a reader can
        // begin anywhere.
        if self.values.has_chunk() && self.retired.is_none() {
            self.retired = Some(self.values_at - self.values.base());
            self.values_at = self.values.end;
        }
        self.flow.publish(used);
        self.flow.claim(p::STREAM_FLOW, self.tid, lost);
        self.flow_at = self.flow.base();
    }

    /// The values of a block, `bytes` of them, do not fit. Its unit of `unit` bytes is in FLOW
    /// already.
    pub fn next_values(&mut self, bytes: usize, unit: usize, context: &Context) {
        let used = self
            .retired
            .take()
            .unwrap_or(self.block_at - self.values.base());
        self.values.renew(self.tid, used);
        self.block_at = self.values.base();
        self.values_at = self.block_at + bytes;
        let position = self.flow.start_pos + (self.used() - unit) as u64;
        if let Some(chunk) = self.values.chunk() {
            chunk.start_pos = position;
            chunk.regs[..16].copy_from_slice(&context.regs);
            chunk.regs[17] = context.flags;
            chunk.regs_valid = 0x2ffff;
        }
    }

    /// Says once that control is elsewhere.
    pub fn is_away(&mut self, sp: u64) {
        if !self.started || self.away_at == self.flow_at {
            return;
        }
        let transfer = p::Transfer {
            ts: sys::event_now(),
            from_pc: 0,
            to_pc: 0,
            to_sp: sp,
            cause: p::TRANSFER_OTHER,
            reserved: 0,
        };
        self.event_of(p::EVENT_TRANSFER, &transfer);
        self.away_at = self.flow_at;
    }

    /// Hands over the values.
    fn publish_values(&mut self) {
        let used = self
            .retired
            .take()
            .unwrap_or(self.values_at - self.values.base());
        if self.values.has_chunk() {
            self.values.publish(used);
        }
        self.values_at = self.values.end;
        self.block_at = self.values.end;
    }

    fn start(&mut self, sp: u64) {
        if self.started {
            return;
        }
        self.started = true;
        let mut fs_base = 0u64;
        // ARCH_GET_FS
        sys::call3(
            sys::ARCH_PRCTL,
            0x1003,
            std::ptr::addr_of_mut!(fs_base) as usize,
            0,
        );
        let (stack_pointer, start_pc) = if self.is_first {
            (initial_stack(), entry())
        } else {
            (sp, 0)
        };
        let start = p::ThreadStart {
            tid: self.tid,
            creator_tid: self.creator,
            ts: sys::event_now(),
            fs_base,
            stack_pointer,
            start_pc,
        };
        self.event(p::EVENT_THREAD_START, bytes_of(&start), &[]);
    }

    /// Appends an event. Only by the thread itself.
    pub fn event(&mut self, kind: u16, first: &[u8], second: &[u8]) {
        let bytes = first.len() + second.len();
        let record = Record {
            magic: p::FLOW_EVENT,
            kind,
            bytes: bytes as u32,
        };
        let header = std::mem::size_of::<Record>();
        let whole = header + bytes + bytes % 2;
        if !self.started {
            self.renew_flow(0);
            self.start(0);
        }
        // One more unit must fit behind it: full is noticed when a unit is written.
        if whole + 2 > self.flow.end - self.flow_at {
            let used = self.used();
            self.renew_flow(used);
        }
        // SAFETY: there is room in the window.
        unsafe {
            let at = self.flow_at as *mut u8;
            std::ptr::copy_nonoverlapping(first.as_ptr(), at.add(header), first.len());
            std::ptr::copy_nonoverlapping(
                second.as_ptr(),
                at.add(header + first.len()),
                second.len(),
            );
            // Last: the reader stops at the first zero, so an event cut short by a kill is not
            // there.
            std::sync::atomic::fence(Ordering::Release);
            std::ptr::copy_nonoverlapping(bytes_of(&record).as_ptr(), at, header);
        }
        self.flow_at += whole;
    }

    pub fn event_of<T: Pod>(&mut self, kind: u16, payload: &T) {
        self.event(kind, bytes_of(payload), &[]);
    }

    /// Hands over what stands in the chunks; the next unit takes a new one.
    pub fn flush(&mut self) {
        self.publish_values();
        let used = self.used();
        self.renew_flow(used);
    }

    /// The thread is about to end.
    pub fn end(&mut self, status: i64) {
        let exit = p::ThreadExit {
            ts: sys::event_now(),
            status,
        };
        self.event_of(p::EVENT_THREAD_EXIT, &exit);
        self.publish_values();
        let used = self.used();
        self.flow.publish(used);
    }

    /// After `end`: nothing more is written.
    pub fn retire(&mut self) {
        self.flow.drop_window();
        self.values.drop_window();
        ENDED.hold().push(Address(self));
    }
}

/// The program's entry point (AT_ENTRY).
fn entry() -> u64 {
    let vector = sys::read_file("/proc/self/auxv\0");
    let word = |at: &[u8]| u64::from_le_bytes(at.try_into().unwrap_or_default());
    let mut pairs = vector.chunks_exact(16);
    pairs
        .find(|pair| word(&pair[..8]) == 9)
        .map_or(0, |pair| word(&pair[8..]))
}

/// The first thread's stack pointer at the start: field 28 of /proc/self/stat.
fn initial_stack() -> u64 {
    let text = sys::read_file("/proc/self/stat\0");
    let behind_name = text.iter().rposition(|&byte| byte == b')').unwrap_or(0);
    let text = String::from_utf8_lossy(&text[behind_name..]);
    let field = text.split_ascii_whitespace().nth(28 - 2);
    field.and_then(|field| field.parse().ok()).unwrap_or(0)
}
