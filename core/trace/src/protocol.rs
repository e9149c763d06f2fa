// SPDX-License-Identifier: MIT
//! The Rust mirror of `include/ff_protocol.h`: what the tracers write into the
//! shared-memory pool and what its chunks contain.
//!
//! Sizes are asserted here; `tests/unit/test_protocol.py` compares every offset
//! with the C side. The header explains the fields; this file does not repeat it.

use bytemuck::{Pod, Zeroable};

/// First bytes of a pool: `FFLESHM1`.
pub const SHM_MAGIC: u64 = 0x314d_4853_454c_4646;
/// Tracer and recorder must have the same.
pub const PROTOCOL_VERSION: u32 = 2;
/// rax rcx rdx rbx rsp rbp rsi rdi r8..r15, then rip and rflags.
pub const REG_COUNT: usize = 18;

/// The bits of `ShmHeader::recorder_alive` that the kernel clears when the recorder dies.
pub const ALIVE: u32 = 0x3fff_ffff;
/// Process `n` of the introductions locks this byte + `n` of the pool's file.
pub const LOCK_BASE: u64 = 1 << 40;
/// Places in the table of introductions behind the pool's header.
pub const INTRODUCTIONS: usize = 256;
/// Answer to an introduction: the kernel could not say the pid.
pub const PID_UNKNOWN: u32 = u32::MAX;

/// `ShmHeader::level`: block ids and events only.
pub const LEVEL_FLOW: u32 = 0;
/// `ShmHeader::level`: also slots.
pub const LEVEL_VALUES: u32 = 1;

/// `Chunk::state`: all zero; a tracer claims it with a compare-and-swap.
pub const CHUNK_FREE: u32 = 0;
/// `Chunk::state`: being written by one thread of the target.
pub const CHUNK_OWNED: u32 = 1;
/// `Chunk::state`: the recorder's, to write out, zero and free.
pub const CHUNK_FULL: u32 = 2;

/// `Chunk::stream`: records of `META_*`, one stream a process.
pub const STREAM_META: u32 = 0;
/// `Chunk::stream`: units of block ids and events, one stream a thread.
pub const STREAM_FLOW: u32 = 1;
/// `Chunk::stream`: slots, one stream a thread.
pub const STREAM_VALUES: u32 = 2;

/// A unit of flow that is padding or not yet written: skip to the end of the chunk.
pub const FLOW_PAD: u16 = 0x0000;
/// Of the live chunks one part in so many is kept free of VALUES.
pub const FLOW_SHARE: u32 = 8;
/// From here on a unit holds the high 12 bits of a block id; the low 16 follow.
pub const FLOW_LONG: u16 = 0xf000;
/// A unit of flow that begins a [`Record`].
pub const FLOW_EVENT: u16 = 0xffff;
/// The largest block id a flow unit can carry.
pub const BLOCK_ID_MAX: u32 = 0x0ffe_ffff;

/// Payload: [`ThreadStart`].
pub const EVENT_THREAD_START: u16 = 1;
/// Payload: [`ThreadExit`].
pub const EVENT_THREAD_EXIT: u16 = 2;
/// Payload: [`SyscallEnter`].
pub const EVENT_SYSCALL_ENTER: u16 = 3;
/// Payload: [`SyscallExit`].
pub const EVENT_SYSCALL_EXIT: u16 = 4;
/// Payload: [`Signal`]: the next block is the handler's first.
pub const EVENT_SIGNAL: u16 = 5;
/// Payload: [`Transfer`]: the kernel or the tracer moved control.
pub const EVENT_TRANSFER: u16 = 6;
/// Payload: [`Alloc`].
pub const EVENT_ALLOC: u16 = 7;
/// Payload: [`Free`].
pub const EVENT_FREE: u16 = 8;
/// Payload: [`Fork`].
pub const EVENT_FORK: u16 = 9;
/// Payload: [`Exec`], then the path.
pub const EVENT_EXEC: u16 = 10;
/// Payload: [`GapRecord`]: flow was lost here.
pub const EVENT_GAP: u16 = 11;
/// No payload: the following blocks have no slots in VALUES.
pub const EVENT_VALUES_OFF: u16 = 12;
/// No payload: they have them again.
pub const EVENT_VALUES_ON: u16 = 13;
/// Payload: the name, without a zero.
pub const EVENT_THREAD_NAME: u16 = 14;
/// Payload: [`Fault`]: the block before was left early.
pub const EVENT_FAULT: u16 = 15;

/// `Transfer::cause`: a signal handler returned.
pub const TRANSFER_SIGRETURN: u32 = 1;
/// `Transfer::cause`: any other.
pub const TRANSFER_OTHER: u32 = 2;
/// A call was stepped over: `from_pc` is its entry, `to_pc` behind it. Only debuggers do so, no
/// tracer in C.
pub const TRANSFER_CALL_OVER: u32 = 3;

/// Payload: [`ProcessRecord`], then the executable's path.
pub const META_PROCESS: u16 = 1;
/// Payload: [`ModuleLoad`], then segments, build id and path.
pub const META_MODULE_LOAD: u16 = 2;
/// Payload: [`ModuleUnload`].
pub const META_MODULE_UNLOAD: u16 = 3;
/// Payload: [`BlockRecord`], then code and slots.
pub const META_BLOCK: u16 = 4;
/// Payload: UTF-8, a fallback or warning of the tracer.
pub const META_NOTE: u16 = 5;

/// The value that memory operand `detail` was read with.
pub const SLOT_LOAD: u8 = 1;
/// The value of general register `detail` after the instruction.
pub const SLOT_REGISTER: u8 = 2;
/// The effective address of memory operand `detail`.
pub const SLOT_ADDRESS: u8 = 3;

/// Declares a `repr(C)` plain-data struct, asserts its size and lists its layout
/// for `examples/protocol_layout.rs`.
macro_rules! shared_struct {
    ($name:ident = $c_name:literal, $size:literal { $($field:ident : $type:ty),* $(,)? }) => {
        #[doc = concat!("`struct ", $c_name, "`; the header explains its fields.")]
        #[allow(missing_docs)]
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Pod, Zeroable)]
        pub struct $name { $(pub $field: $type),* }
        const _: () = assert!(std::mem::size_of::<$name>() == $size);
        impl $name {
            /// Name in C, size in bytes, then every field's name and offset.
            pub fn layout() -> Layout {
                Layout {
                    name: $c_name,
                    size: $size,
                    fields: vec![$((stringify!($field), std::mem::offset_of!($name, $field))),*],
                }
            }
        }
    };
}

/// The memory layout of one shared struct.
pub struct Layout {
    /// In C.
    pub name: &'static str,
    /// Bytes.
    pub size: usize,
    /// Name and offset in bytes of each.
    pub fields: Vec<(&'static str, usize)>,
}

shared_struct!(ShmHeader = "ff_shm_header", 128 {
    magic: u64, version: u32, chunk_count: u32, chunk_bytes: u32, level: u32,
    descriptor_offset: u64, data_offset: u64, full_doorbell: u32, free_doorbell: u32,
    recorder_alive: u32, recorder_gone: u32, live_limit: u32, live_count: u32,
    dropped_flow_bytes: u64, dropped_value_chunks: u64, stop: u32, introduced: u32, answers: u32,
    reserved: [u32; 9],
});
shared_struct!(Introduction = "ff_introduction", 8 { number: u32, pid: u32 });
shared_struct!(Chunk = "ff_chunk", 256 {
    state: u32, stream: u32, pid: u32, tid: u32, seq: u64, start_pos: u64, ts_open: u64,
    ts_full: u64, used: u32, regs_valid: u32, regs: [u64; REG_COUNT],
    image_ts: u64, reserved: [u64; 6],
});
shared_struct!(Record = "ff_record", 8 { magic: u16, kind: u16, bytes: u32 });
shared_struct!(ThreadStart = "ff_thread_start", 40 {
    tid: u32, creator_tid: u32, ts: u64, fs_base: u64, stack_pointer: u64, start_pc: u64,
});
shared_struct!(ThreadExit = "ff_thread_exit", 16 { ts: u64, status: i64 });
shared_struct!(SyscallEnter = "ff_syscall_enter", 208 {
    ts: u64, number: u32, regs_valid: u32, args: [u64; 6], regs: [u64; REG_COUNT],
});
shared_struct!(SyscallExit = "ff_syscall_exit", 24 {
    ts: u64, result: i64, number: u32, reserved: u32,
});
shared_struct!(Signal = "ff_signal", 40 {
    ts: u64, signo: u32, code: u32, interrupted_pc: u64, handler_pc: u64, handler_sp: u64,
});
shared_struct!(Transfer = "ff_transfer", 40 {
    ts: u64, from_pc: u64, to_pc: u64, to_sp: u64, cause: u32, reserved: u32,
});
shared_struct!(Alloc = "ff_alloc", 40 {
    addr: u64, size: u64, caller_pc: u64, old_addr: u64, kind: u32, reserved: u32,
});
shared_struct!(Free = "ff_free", 16 { addr: u64, caller_pc: u64 });
shared_struct!(Fork = "ff_fork", 16 { ts: u64, child_pid: u32, reserved: u32 });
shared_struct!(Exec = "ff_exec", 8 { ts: u64 });
shared_struct!(GapRecord = "ff_gap", 16 { ts: u64, bytes: u64 });
shared_struct!(Fault = "ff_fault", 16 { ts: u64, pc: u64 });
shared_struct!(ProcessRecord = "ff_process", 24 {
    ts: u64, pid: u32, parent_pid: u32, path_bytes: u32, reserved: u32,
});
shared_struct!(SegmentRecord = "ff_segment", 32 {
    start: u64, end: u64, file_offset: u64, prot: u32, reserved: u32,
});
shared_struct!(ModuleLoad = "ff_module_load", 48 {
    ts: u64, module: u32, segment_count: u32, base: u64, start: u64, end: u64,
    build_id_bytes: u32, path_bytes: u32,
});
shared_struct!(ModuleUnload = "ff_module_unload", 16 { ts: u64, module: u32, reserved: u32 });
shared_struct!(BlockRecord = "ff_block", 24 {
    id: u32, module: u32, pc: u64, code_bytes: u32, instruction_count: u16, slot_count: u16,
});
shared_struct!(SlotRecord = "ff_slot", 4 { instruction: u8, kind: u8, size: u8, detail: u8 });

/// Bytes of [`SyscallEnter`] when it carries no registers.
pub const SYSCALL_ENTER_SHORT: usize = std::mem::offset_of!(SyscallEnter, regs);

/// Every shared struct's layout, in the header's order.
pub fn layouts() -> Vec<Layout> {
    vec![
        ShmHeader::layout(),
        Introduction::layout(),
        Chunk::layout(),
        Record::layout(),
        ThreadStart::layout(),
        ThreadExit::layout(),
        SyscallEnter::layout(),
        SyscallExit::layout(),
        Signal::layout(),
        Transfer::layout(),
        Alloc::layout(),
        Free::layout(),
        Fork::layout(),
        Exec::layout(),
        GapRecord::layout(),
        Fault::layout(),
        ProcessRecord::layout(),
        SegmentRecord::layout(),
        ModuleLoad::layout(),
        ModuleUnload::layout(),
        BlockRecord::layout(),
        SlotRecord::layout(),
    ]
}

/// Reads a plain struct from the front of `bytes`; `None` when too short.
pub fn read<T: Pod>(bytes: &[u8]) -> Option<T> {
    bytes
        .get(..std::mem::size_of::<T>())
        .map(bytemuck::pod_read_unaligned)
}
