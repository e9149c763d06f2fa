/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What the watching BPF programs and core/watch share. core/watch/src/protocol.rs mirrors it;
 * tests/unit/test_protocol.py compares the two, field by field. */
#ifndef FF_WATCH_H
#define FF_WATCH_H

#include <linux/types.h>

#define FF_WATCH_MAX 4 /* debug registers of an x86 CPU */
#define FF_SITE_MAX 32
#define FF_STACK_WORDS 64
#define FF_REGISTERS 16
#define FF_NO_REGISTER 0xff
#define FF_NAME_BYTES 16

/* struct ff_watch_hit.kind */
#define FF_HIT_WATCH 0 /* a debug register fired: after the access */
#define FF_HIT_SITE 1  /* a hooked instruction is about to execute */

/* struct ff_watch_hit.cpu of other backends than BPF, who hand over the same records: not known. */
#define FF_NO_CPU 0xffffffff

/* struct ff_watch_hit.place of a debug register, where it is not known which of them fired. */
#define FF_NO_PLACE 0xffff

/* struct ff_watch_hit.marks */
#define FF_MARK_VALUE 1 /* `value` was read from memory in the handler */
#define FF_MARK_KERNEL                                                                             \
    2 /* the kernel accessed it for the thread; the registers are those of its system call */
#define FF_MARK_LAST 4 /* the newest of `reads` reads that were held back; without a stack */

/* struct ff_watch_read_site.shows, if it is no register's number */
#define FF_SHOWS_ZERO_FLAG 16
#define FF_SHOWS_NOTHING 0xff

/* Registers are numbered as in machine code: rax rcx rdx rbx rsp rbp rsi rdi r8..r15. */
struct ff_watch_hit {
    __u64 ts;       /* CLOCK_MONOTONIC, ns */
    __u64 sequence; /* counts the records of this CPU, lost ones too */
    __u64 address;  /* of the word */
    __u64 value;
    __u64 reads; /* how many reads this record stands for */
    __u64 ip;
    __u64 rflags;
    __u64 registers[FF_REGISTERS];
    __s64 syscall; /* with FF_MARK_KERNEL */
    __u32 tid;
    __u32 cpu;
    __u16 place; /* index into watches or sites */
    __u8 kind;
    __u8 marks;
    __u32 words; /* of `stack` that hold something */
    char thread[FF_NAME_BYTES];
    __u64 stack[FF_STACK_WORDS]; /* from the stack pointer upwards */
};

/* What user space found out about the code before an address: it only reads, and where the value
 * that it read shows. */
struct ff_watch_read_site {
    __u8 shows; /* a register's number, or FF_SHOWS_.. */
    __u8 bytes; /* of the register */
    __u8 reserved[2];
};

/* A reader whose reads are held back until the word is written. */
struct ff_watch_reader {
    __u64 ip;
    __u64 address;
    __u32 tid;
    __u32 place;
};

struct ff_watch_held {
    __u64 generation; /* of the word when it read */
    __u64 seen;       /* what showed the word's value; all held reads saw the same */
    __u64 ts;
    __u64 value;
    __u64 reads;
    __u64 rflags;
    __u64 registers[FF_REGISTERS];
    __u32 marks;
    __u32 cpu;
    char thread[FF_NAME_BYTES];
};

/* By its address. */
struct ff_watch_word {
    __u32 place; /* its number */
    __u32 size;
    __u32 reads; /* the breakpoint covers reads too */
};

/* An instruction to hook, and how its operand's address is computed. */
struct ff_watch_site {
    __u64 ip;
    __u64 displacement;
    __u8 base; /* register numbers, FF_NO_REGISTER: none */
    __u8 index;
    __u8 scale; /* 1, 2, 4, 8 */
    __u8 size;
    __u8 known; /* the address can be computed */
    __u8 thin;  /* reads only: repeated reads of one value are held back */
    __u8 reserved[2];
};

struct ff_watch_config {
    __u32 tgid;
    __u32 sites;
    /* The word, if it is the only one, for handlers inside the process; else size is 0. */
    __u64 address;
    __u32 size;
    __u32 reads;
    struct ff_watch_site site[FF_SITE_MAX];
};

/* Per CPU. */
struct ff_watch_count {
    __u64 sequence; /* records tried */
    __u64 lost;     /* of those, found no room */
    __u64 hits;     /* accesses; one that is held back goes into no record of its own */
    __u64 crowded;  /* reads that were not held back: there was no room among the readers */
};

#endif
