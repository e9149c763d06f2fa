/* SPDX-License-Identifier: MIT */
/* What the tracers (C) and the engine (Rust) share: the shared-memory pool a
 * tracer writes and the recorder drains, and the records inside its chunks.
 *
 * The mirror is core/trace/src/protocol.rs; tests/unit/test_protocol.py compiles
 * this header and compares every size and offset with the Rust side.
 *
 * Everything is little-endian, x86-64. Addresses are run-time addresses; the
 * engine turns them into module + offset with the module records.
 */
#ifndef FF_PROTOCOL_H
#define FF_PROTOCOL_H

#include <stdint.h>

#define FF_SHM_MAGIC UINT64_C(0x314d4853454c4646) /* "FFLESHM1" */
#define FF_PROTOCOL_VERSION 2

/* ---- the pool ------------------------------------------------------------
 * header | descriptors | page-aligned chunk data.  The file is sparse: a chunk
 * costs memory only once written. */

enum ff_level { FF_LEVEL_FLOW = 0, FF_LEVEL_VALUES = 1 };

struct ff_shm_header {
    uint64_t magic;
    uint32_t version;
    uint32_t chunk_count;
    uint32_t chunk_bytes; /* a multiple of the page size */
    uint32_t level;       /* enum ff_level */
    uint64_t descriptor_offset;
    uint64_t data_offset;
    uint32_t full_doorbell;  /* futex: a tracer bumps it when a chunk is FULL */
    uint32_t free_doorbell;  /* futex: the recorder bumps it when chunks are FREE */
    uint32_t recorder_alive; /* a robust futex that a thread of the recorder holds: the kernel
                                clears the bits of FF_ALIVE when that dies. Needs no pid, so it
                                holds in every pid namespace */
    uint32_t recorder_gone;  /* set by the recorder on exit: stop waiting, drop what does not fit */
    uint32_t live_limit;     /* most chunks that may be OWNED or FULL at once */
    uint32_t live_count;
    uint64_t dropped_flow_bytes;   /* flow lost because the recorder was gone */
    uint64_t dropped_value_chunks; /* value chunks overwritten before they were drained */
    uint32_t stop;                 /* the recorder asks the tracers to stop writing */
    uint32_t introduced;           /* how many numbers were given out, below */
    uint32_t answers;              /* nonzero: there is a recorder that answers introductions */
    uint32_t reserved[9];
};

/* FUTEX_TID_MASK: all zero once the thread is dead. */
#define FF_ALIVE 0x3fffffffu

/* ---- who a process is -----------------------------------------------------
 * A process knows its pid in its own pid namespace only. So it takes a number (++introduced), locks
 * the byte FF_LOCK_BASE + number of the pool's file (F_SETLK), writes the number into a free place
 * of the table behind the header and bumps full_doorbell. The recorder asks the kernel who holds
 * the lock (F_GETLK), which answers with the pid in the recorder's namespace, writes that into the
 * place, and wakes it. The process then frees the place. */
#define FF_LOCK_BASE (UINT64_C(1) << 40)
#define FF_INTRODUCTIONS 256
#define FF_PID_UNKNOWN UINT32_MAX

struct ff_introduction {
    uint32_t number; /* 0: free */
    uint32_t pid;    /* futex. 0: not answered yet; FF_PID_UNKNOWN: the kernel could not say */
};

/* One part in so many of the live chunks is kept free of VALUES, so that FLOW does not wait until
 * VALUES are compressed. */
#define FF_FLOW_SHARE 8

enum ff_chunk_state {
    FF_CHUNK_FREE = 0,  /* all zero; a tracer claims it with a compare-and-swap */
    FF_CHUNK_OWNED = 1, /* being written by one thread of the target */
    FF_CHUNK_FULL = 2,  /* the recorder's: write out, zero, mark FREE */
};

enum ff_stream {
    FF_STREAM_META = 0,   /* one per process: struct ff_record with enum ff_meta kinds */
    FF_STREAM_FLOW = 1,   /* one per thread: block ids and events, lossless */
    FF_STREAM_VALUES = 2, /* one per thread: slots, first and newest kept under pressure */
};

/* x86 numbering: rax rcx rdx rbx rsp rbp rsi rdi r8..r15, then rip (never valid: the block says
 * it), rflags */
#define FF_REG_COUNT 18

struct ff_chunk {
    uint32_t state;      /* enum ff_chunk_state, release/acquire */
    uint32_t stream;     /* enum ff_stream */
    uint32_t pid;        /* in the recorder's pid namespace */
    uint32_t tid;        /* in the process's own, as the program's futexes hold it */
    uint64_t seq;        /* 0,1,2.. within the stream */
    uint64_t start_pos;  /* FLOW/META: bytes of this stream before the chunk.
                            VALUES: the flow position (bytes) of the block unit whose
                            slots come first here */
    uint64_t ts_open;    /* CLOCK_MONOTONIC ns */
    uint64_t ts_full;    /* 0 while OWNED */
    uint32_t used;       /* bytes, set when FULL; while OWNED the reader derives it */
    uint32_t regs_valid; /* VALUES: bit r set: regs[r] is the application's value at
                              the entry of that first block */
    uint64_t regs[FF_REG_COUNT];
    uint64_t image_ts;    /* ts of the ff_process record of the program image that writes: tells
                       apart the streams of one pid before and after an exec */
    uint64_t reserved[6]; /* to 256 bytes: no two threads share a cache line */
};

/* ---- FLOW: a stream of little-endian uint16 units -------------------------
 * 0x0000           padding or not yet written; skip to the end of the chunk
 * 0x0001..0xefff   a block id
 * 0xf000..0xfffe   high 12 bits (minus 0xf000) of a block id, the low 16 follow;
 *                  stored as one 32-bit write
 * 0xffff           an event: struct ff_record follows in place (magic = this unit)
 * A unit is written when control enters the block, before its first instruction. */
#define FF_FLOW_PAD 0x0000
#define FF_FLOW_LONG 0xf000
#define FF_FLOW_EVENT 0xffff

/* Header of an event in FLOW and of a record in META. Payload padded to 2 bytes. */
struct ff_record {
    uint16_t magic; /* FF_FLOW_EVENT */
    uint16_t kind;
    uint32_t bytes; /* payload, without this header and the padding */
};

/* Times in events are CLOCK_MONOTONIC, rounded down to so many ns. What is below is the tracer's
 * own jitter, and most of what a thread that polls with a system call would take on disk. */
#define FF_EVENT_GRAIN 64

enum ff_event {
    FF_EVENT_THREAD_START = 1,
    FF_EVENT_THREAD_EXIT = 2,
    FF_EVENT_SYSCALL_ENTER = 3,
    FF_EVENT_SYSCALL_EXIT = 4,
    FF_EVENT_SIGNAL = 5,   /* delivered: the next block is the handler's first */
    FF_EVENT_TRANSFER = 6, /* the kernel or tracer moved control: sigreturn, rseq abort, .. */
    FF_EVENT_ALLOC = 7,
    FF_EVENT_FREE = 8,
    FF_EVENT_FORK = 9,
    FF_EVENT_EXEC = 10,
    FF_EVENT_GAP = 11,         /* flow was lost here */
    FF_EVENT_VALUES_OFF = 12,  /* following blocks have no slots in VALUES .. */
    FF_EVENT_VALUES_ON = 13,   /* .. until here */
    FF_EVENT_THREAD_NAME = 14, /* payload: the name, no NUL */
    FF_EVENT_FAULT = 15,       /* the block was left early at pc (fault or signal in mid-block);
                          slots of instructions at and after pc are not valid */
};

struct ff_thread_start {
    uint32_t tid;
    uint32_t creator_tid; /* 0: the process's first thread or unknown */
    uint64_t ts;
    uint64_t fs_base;
    uint64_t stack_pointer;
    uint64_t start_pc; /* the program's entry; 0 for a cloned thread: its first block's pc is it */
};
struct ff_thread_exit {
    uint64_t ts;
    int64_t status;
};
struct ff_syscall_enter {
    uint64_t ts;
    uint32_t number;
    uint32_t regs_valid; /* as ff_chunk; 0 at level flow */
    uint64_t args[6];
    uint64_t regs[FF_REG_COUNT]; /* present only if regs_valid != 0 */
};
struct ff_syscall_exit {
    uint64_t ts;
    int64_t result; /* -512 (ERESTARTSYS): put off for a signal, and entered again */
    uint32_t number;
    uint32_t reserved;
};
struct ff_signal {
    uint64_t ts;
    uint32_t signo;
    uint32_t code;
    uint64_t interrupted_pc;
    uint64_t handler_pc;
    uint64_t handler_sp;
};
struct ff_transfer {
    uint64_t ts;
    uint64_t from_pc;
    uint64_t to_pc;
    uint64_t to_sp;
    uint32_t cause;
    uint32_t reserved;
};
enum ff_transfer_cause { FF_TRANSFER_SIGRETURN = 1, FF_TRANSFER_OTHER = 2 };
enum ff_alloc_kind {
    FF_ALLOC_MALLOC = 1,
    FF_ALLOC_CALLOC = 2,
    FF_ALLOC_REALLOC = 3,
    FF_ALLOC_ALIGNED = 4
};
struct ff_alloc {
    uint64_t addr;
    uint64_t size;
    uint64_t caller_pc;
    uint64_t old_addr;
    uint32_t kind;
    uint32_t reserved;
};
struct ff_free {
    uint64_t addr;
    uint64_t caller_pc;
};
struct ff_fork {
    uint64_t ts;
    uint32_t child_pid;
    uint32_t reserved;
};
struct ff_exec {
    uint64_t ts; /* then the path, no NUL */
};
struct ff_gap {
    uint64_t ts;
    uint64_t bytes;
};
struct ff_fault {
    uint64_t ts;
    uint64_t pc;
};

/* ---- META: struct ff_record with these kinds ------------------------------
 * The recorder reads META while it grows, so that a killed recorder's file can be
 * decoded: a record's magic is written last, after everything behind it. */
enum ff_meta {
    FF_META_PROCESS = 1,
    FF_META_MODULE_LOAD = 2,
    FF_META_MODULE_UNLOAD = 3,
    FF_META_BLOCK = 4,
    FF_META_NOTE = 5, /* UTF-8: a fallback or warning of the tracer */
};
struct ff_process {
    uint64_t ts;
    uint32_t pid;
    uint32_t parent_pid;
    uint32_t path_bytes; /* executable's path follows, no NUL */
    uint32_t reserved;
};
struct ff_segment {
    uint64_t start;
    uint64_t end;
    uint64_t file_offset;
    uint32_t prot;
    uint32_t reserved;
};
struct ff_module_load {
    uint64_t ts;
    uint32_t module; /* 1,2,3.. within the process */
    uint32_t segment_count;
    uint64_t base; /* run-time address of ELF vaddr 0, that is base + vaddr = address */
    uint64_t start;
    uint64_t end;
    uint32_t build_id_bytes;
    uint32_t path_bytes;
    /* then segments, build id bytes, path bytes */
};
struct ff_module_unload {
    uint64_t ts;
    uint32_t module;
    uint32_t reserved;
};

/* A block: straight-line code entered at its top. `slot_count` slots follow the code
 * bytes; the block's share of VALUES is the sum of their sizes, in order, unaligned. */
struct ff_block {
    uint32_t id;     /* from 1 */
    uint32_t module; /* 0: none (JIT, stack, vdso without a file) */
    uint64_t pc;
    uint32_t code_bytes;
    uint16_t instruction_count;
    uint16_t slot_count;
    /* then code bytes, then slots */
};
enum ff_slot_kind {
    FF_SLOT_LOAD = 1, /* value read from memory by operand `detail` (0 = the first memory
                 operand read, in Intel operand order) */
    FF_SLOT_REGISTER =
        2, /* value of general register `detail` (x86 number) after the instruction:
              results an evaluator cannot compute (rdtsc, cpuid, movq r64,xmm, rep cmps..) */
    FF_SLOT_ADDRESS =
        3, /* effective address of memory operand `detail`, where registers do not give it */
};
struct ff_slot {
    uint8_t instruction; /* index in the block; a block has at most 255 instructions */
    uint8_t kind;        /* enum ff_slot_kind */
    uint8_t size;        /* bytes in VALUES: 1, 2, 4, 8 */
    uint8_t detail;
};

#define FF_ASSERT_SIZE(type, size) _Static_assert(sizeof(struct type) == (size), #type)
FF_ASSERT_SIZE(ff_shm_header, 128);
FF_ASSERT_SIZE(ff_introduction, 8);
FF_ASSERT_SIZE(ff_chunk, 256);
FF_ASSERT_SIZE(ff_record, 8);
FF_ASSERT_SIZE(ff_thread_start, 40);
FF_ASSERT_SIZE(ff_syscall_enter, 208);
FF_ASSERT_SIZE(ff_syscall_exit, 24);
FF_ASSERT_SIZE(ff_alloc, 40);
FF_ASSERT_SIZE(ff_module_load, 48);
FF_ASSERT_SIZE(ff_block, 24);
FF_ASSERT_SIZE(ff_slot, 4);

#endif
