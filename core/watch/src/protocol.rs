// SPDX-License-Identifier: MIT
//! The Rust mirror of `bpf/ff_watch.h`, which explains the fields. `tests/unit/test_protocol.py`
//! compares every offset. The agent that Frida brings into a program is compiled with it, too.

use crate::{shared_struct, Layout};

pub const WATCH_MAX: usize = 4;
pub const SITE_MAX: usize = 32;
pub const STACK_WORDS: usize = 64;
pub const REGISTERS: usize = 16;
pub const NO_REGISTER: u8 = 0xff;
pub const NAME_BYTES: usize = 16;

pub const HIT_WATCH: u8 = 0;
pub const HIT_SITE: u8 = 1;

pub const NO_CPU: u32 = 0xffff_ffff;
pub const NO_PLACE: u16 = 0xffff;

pub const MARK_VALUE: u8 = 1;
pub const MARK_KERNEL: u8 = 2;
pub const MARK_LAST: u8 = 4;

pub const SHOWS_ZERO_FLAG: u8 = 16;
pub const SHOWS_NOTHING: u8 = 0xff;

shared_struct!(Hit = "ff_watch_hit" {
    ts: u64, sequence: u64, address: u64, value: u64, reads: u64, ip: u64, rflags: u64,
    registers: [u64; REGISTERS], syscall: i64, tid: u32, cpu: u32, place: u16, kind: u8, marks: u8,
    words: u32, thread: [u8; NAME_BYTES], stack: [u64; STACK_WORDS],
});
shared_struct!(ReadSite = "ff_watch_read_site" { shows: u8, bytes: u8, reserved: [u8; 2] });
shared_struct!(Reader = "ff_watch_reader" { ip: u64, address: u64, tid: u32, place: u32 });
shared_struct!(Held = "ff_watch_held" {
    generation: u64, seen: u64, ts: u64, value: u64, reads: u64, rflags: u64,
    registers: [u64; REGISTERS], marks: u32, cpu: u32, thread: [u8; NAME_BYTES],
});
shared_struct!(Word = "ff_watch_word" { place: u32, size: u32, reads: u32 });
shared_struct!(Site = "ff_watch_site" {
    ip: u64, displacement: u64, base: u8, index: u8, scale: u8, size: u8, known: u8, thin: u8,
    reserved: [u8; 2],
});
shared_struct!(Config = "ff_watch_config" {
    tgid: u32, sites: u32, address: u64, size: u32, reads: u32, site: [Site; SITE_MAX],
});
shared_struct!(Count = "ff_watch_count" { sequence: u64, lost: u64, hits: u64, crowded: u64 });

impl Hit {
    /// From a ring record; `None` when it is too short.
    pub fn read(bytes: &[u8]) -> Option<Hit> {
        let bytes = bytes.get(..size_of::<Hit>())?;
        // SAFETY: long enough, any bytes are a Hit, and unaligned reads are asked for.
        Some(unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
    }

    /// Without the unused part of the stack.
    pub fn pack(&self) -> Box<[u8]> {
        let unused = STACK_WORDS.saturating_sub(self.words as usize) * 8;
        self.bytes()[..size_of::<Hit>() - unused].into()
    }

    /// The reverse of `pack`.
    pub fn unpack(bytes: &[u8]) -> Hit {
        let mut hit = Hit::default();
        let count = bytes.len().min(size_of::<Hit>());
        // SAFETY: `count` bytes are there on both sides, and any bytes are a Hit.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                std::ptr::from_mut(&mut hit).cast::<u8>(),
                count,
            );
        }
        hit
    }

    /// What a reader's held reads come to.
    pub fn from_held(reader: &Reader, held: &Held, kind: u8) -> Hit {
        Hit {
            ts: held.ts,
            address: reader.address,
            value: held.value,
            reads: held.reads,
            ip: reader.ip,
            rflags: held.rflags,
            registers: held.registers,
            tid: reader.tid,
            cpu: held.cpu,
            place: reader.place as u16,
            kind,
            marks: held.marks as u8 | MARK_LAST,
            thread: held.thread,
            ..Hit::default()
        }
    }

    pub fn has(&self, mark: u8) -> bool {
        self.marks & mark != 0
    }

    pub fn reader(&self) -> Reader {
        Reader {
            ip: self.ip,
            address: self.address,
            tid: self.tid,
            place: u32::from(self.place),
        }
    }

    /// Hits of one lane trap one after the other: those of a CPU whose handler can't be
    /// interrupted, else those of a thread.
    pub fn lane(&self) -> u64 {
        match self.cpu {
            NO_CPU => 1 << 32 | u64::from(self.tid),
            cpu => u64::from(cpu),
        }
    }

    pub fn thread_name(&self) -> String {
        let end = self.thread.iter().position(|&b| b == 0);
        String::from_utf8_lossy(&self.thread[..end.unwrap_or(NAME_BYTES)]).into_owned()
    }
}

/// Every shared struct's layout, in the header's order.
pub fn layouts() -> Vec<Layout> {
    vec![
        Hit::layout(),
        ReadSite::layout(),
        Reader::layout(),
        Held::layout(),
        Word::layout(),
        Site::layout(),
        Config::layout(),
        Count::layout(),
    ]
}
