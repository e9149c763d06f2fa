/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What the event-recording BPF programs and graph/events share. graph/events/src/protocol.rs
 * mirrors it; tests/unit/test_protocol.py compares the two, field by field. */
#ifndef FF_EVENTS_H
#define FF_EVENTS_H

#include <linux/types.h>

#define FF_NAME_BYTES 16
#define FF_STACK_WORDS 64   /* of the user stack that are looked at */
#define FF_STACK_MOST 32    /* of those, that are kept at most */
#define FF_COPY_MOST 16384  /* bytes of the user stack that can be copied */
#define FF_PYTHON_FRAMES 16 /* of a thread's Python code, the innermost ones */
#define FF_PYTHON_FRAME 64

/* In the id of a thread or process that the recorder's pid namespace does not show; the rest is the
 * kernel's own id. */
#define FF_ELSEWHERE 0x40000000

/* struct ff_event.kind. `a` is the thread that runs (current), `b` the other one. */
#define FF_EVENT_SWITCH 1     /* b runs next; flags: FF_STATE_*; w0: the call that a blocks in */
#define FF_EVENT_WAKING 2     /* b is woken; flags: FF_CONTEXT_*; w0: struct ff_event_waking */
#define FF_EVENT_ENTER 3      /* a calls; w0: call and first argument */
#define FF_EVENT_ENTER_WIDE 4 /* the same; b: lower half of the second argument, w1: the third */
#define FF_EVENT_EXIT_CALL 5  /* a's call returns; w0: call and result */
#define FF_EVENT_FORK 6       /* b starts; w0: process of b, of a in the high half; w1, w2: name */
#define FF_EVENT_EXEC 7       /* w0: process, old thread id in the high half; w1, w2: name */
#define FF_EVENT_EXIT 8       /* a ends; w0: process, exit status in the high half */
#define FF_EVENT_RENAME 9     /* b's name becomes w0, w1 */
#define FF_EVENT_SIGNAL 10    /* to b; flags: FF_CONTEXT_*; w0: number, result in the high half */
#define FF_EVENT_ARM 11       /* a arms the timer w0, which is not its own call's */
#define FF_EVENT_FIRE 12      /* the timer w0 woke b; just before the FF_EVENT_WAKING */
#define FF_EVENT_STACK 13     /* of the event before; b: words */
#define FF_EVENT_SUBMIT 14    /* a hands the io_uring request w0 to the kernel */
#define FF_EVENT_COMPLETE 15  /* a finds that it is done */
#define FF_EVENT_YIELD 16     /* the clock finds a in sched_yield */
#define FF_EVENT_ENTER_SHORT 17 /* as ENTER, of an argument */
#define FF_EVENT_SAMPLE                                                                            \
    19 /* the clock finds a running; w0: the call it is in, w1: where in user code */
#define FF_EVENT_STACK_COPY                                                                        \
    20 /* as STACK; b: bytes; the words are registers: ip, sp, bp; then what lies at sp */
#define FF_EVENT_EXIT_CALL_SHORT                                                                   \
    18 /* as EXIT_CALL, of a result that fits: struct ff_event.b, flags */
#define FF_EVENT_PYTHON                                                                            \
    21 /* of the event before, ahead of its stack; b: words: of each frame, innermost first, the   \
        * addresses of its code object and of that object's name */

#define FF_EVENT_SENT 22     /* a has sent over TCP or UDP; struct ff_event_exchange */
#define FF_EVENT_RECEIVED 23 /* a has received; the same */
#define FF_EVENT_KERNEL 24   /* of the event before, ahead of its stack; b: words: call sites */
#define FF_EVENT_REFUSED                                                                           \
    25 /* a does not get a file's lock; b has it, 0: not known; w0: process of b */

/* struct ff_event.flags of FF_EVENT_FORK */
#define FF_FORK_NOT_FOLLOWED 1 /* of the new process nothing more is recorded: `tree` is full */

/* struct ff_event.flags of FF_EVENT_SWITCH */
#define FF_STATE_PREEMPTED 0 /* could go on */
#define FF_STATE_SLEEPS 1    /* until woken or signalled */
#define FF_STATE_DISK 2      /* uninterruptible */
#define FF_STATE_STOPPED 3
#define FF_STATE_DEAD 4
#define FF_STATE_OTHER 5

/* struct ff_event.flags of FF_EVENT_WAKING and FF_EVENT_SIGNAL: who does it. But for TASK, `a` only
 * was interrupted. */
#define FF_CONTEXT_UNKNOWN 0
#define FF_CONTEXT_TASK 1
#define FF_CONTEXT_SOFTIRQ 2
#define FF_CONTEXT_HARDIRQ 3
#define FF_CONTEXT_TIMER 4
#define FF_CONTEXT_NMI 5
#define FF_CONTEXT_TIMEOUT 6 /* the timer of the call that b waits in */

/* A call and its first argument or result in one word: number + 1 in the upper 16 bits, 0 for none.
 */
#define FF_CALL_SHIFT 48

/* The same in the record's own fields, for most calls: the number's lower bits in `flags`, its
 * upper ones at the top of `b`, whose rest is the argument or result, signed. */
#define FF_SHORT_SHIFT 30
#define FF_SHORT_NUMBERS 1024

/* Followed by the words of its kind: 0 to 3, or a stack. */
struct ff_event {
    __u64 ts;       /* CLOCK_MONOTONIC, ns */
    __u32 sequence; /* counts the records of this CPU, lost ones too */
    __u16 cpu;
    __u8 kind;
    __u8 flags;
    __u32 a;
    __u32 b;
};

struct ff_event_waking {
    __u16 call; /* number + 1 of the call that `a` is in, 0: none */
    __u16 cpu;  /* where b will run */
    __u8 priority;
    __u8 waker_priority;
    __u16 reserved;
};

#define FF_TCP 6
#define FF_UDP 17

struct ff_event_exchange {
    __u64 socket;   /* where the kernel has it */
    __u64 began;    /* of sending: when the call began; 0: not known */
    __u64 position; /* TCP: the sequence number behind the last byte; UDP: a hash, 0: not known */
    __u32 bytes;
    __u16 local_port;
    __u16 remote_port; /* 0: not known */
    __u8 protocol;     /* FF_TCP, FF_UDP */
    __u8 is_v6;
    __u8 reserved[6];
    __u8 local[16]; /* of IPv4 the first four bytes */
    __u8 remote[16];
};

/* A recorded process. Where it has code: its program, and all the rest. Nothing: length 0. */
struct ff_event_process {
    __u64 program;
    __u64 program_bytes;
    __u64 libraries;
    __u64 libraries_bytes;
    __u64 keeps;  /* 1: the recording lasts while it lives; so for what it starts */
    __u64 python; /* 1: its interpreter is in `pythons` */
};

/* Where a CPython interpreter keeps the frames of its threads. All but the first are offsets. */
struct ff_python {
    __u64 interpreter; /* address of the pointer to the first interpreter */
    __u32 threads;     /* in it: the newest thread */
    __u32 next;        /* in a thread: the one before it */
    __u32 thread;      /* its C library's id, which is the value of the register fs */
    __u32 current;     /* its innermost frame, or what holds that */
    __u32 held;        /* 1: what holds that */
    __u32 frame;       /* in that */
    __u32 code;        /* in a frame, within its first FF_PYTHON_FRAME bytes */
    __u32 previous;    /* the same */
    __u32 name;        /* in a code object: its qualified name */
    __u32 reserved;
};

/* struct ff_events_config.syscalls */
#define FF_SYSCALLS_OFF 0
#define FF_SYSCALLS_LAZY                                                                           \
    1 /* the call a thread blocks in, or wakes from; by the clock, whether it yields */
#define FF_SYSCALLS_TARGET 2 /* and every call of the processes in `tree` */

struct ff_events_config {
    __u64 runqueues;     /* offset of the per-CPU variable; 0: context can't be read */
    __u64 preempt_count; /* the same */
    __u32 everything;    /* scheduling of all processes, not only of those in `tree` */
    __u32 syscalls;
    __u32 stack_words; /* kept at a block or wake; 0: none */
    __u32 program_only;
    __u64 copy_bytes;  /* of the stack, instead of words that lie in code; 0: none */
    __u64 name_begins; /* patterns of thread names, see graph/events/src/names.rs; all 0: every name
                        */
    __u64 name_repeats;
    __u64 name_ends;
};

/* Per CPU. */
struct ff_events_cpu {
    __u64 sequence;     /* records tried */
    __u64 lost;         /* of those, found no room */
    __u64 timer;        /* that runs its function now */
    __u64 not_followed; /* new processes for which `tree` had no room */
    __u64 stacks_dropped;
    __u64 refused; /* when FF_EVENT_REFUSED was recorded last */
};

/* What top.bpf.c adds up. */
#define FF_TOP_SLOTS 32  /* by powers of two of microseconds; the first is below one */
#define FF_TOP_TURNS 16  /* of who had a CPU, that are remembered */
#define FF_TOP_CALLS 512 /* numbers that can be asked for */

struct ff_top_config {
    __u64 least; /* ns: shorter waits and delays are not counted */
    __u64 calls[FF_TOP_CALLS / 64];
    __u32 some_calls; /* only these */
    __u32 tid;        /* 0: all */
    __u32 results;    /* waits are counted by what their call returns */
    __u32 error;      /* and only if that is this errno; 0: all */
};

/* What a thread does since its last switch or wake. */
struct ff_top_thread {
    __u64 since;   /* when it blocked; 0: it does not wait */
    __u64 ready;   /* when it could run, but had no processor; 0: it runs, or waits */
    __u64 blocked; /* ns in the call that goes on, when its result is asked for */
    __u64 stack;
    __u32 call; /* number + 1 */
    __u32 tid;
    __u32 process;
    char name[FF_NAME_BYTES];
    __u32 reserved;
};

struct ff_top_wait {
    __u64 stack; /* key in `stacks`; 0: none */
    __u32 tid;
    __u32 process;
    __u32 call;  /* number + 1; 0: none */
    __u32 error; /* errno */
};

struct ff_top_sums {
    __u64 count;
    __u64 total; /* ns */
    __u64 longest;
    __u64 slots[FF_TOP_SLOTS];
};

struct ff_top_pair {
    __u32 tid;
    __u32 other;
};

struct ff_top_name {
    __u32 process;
    char name[FF_NAME_BYTES];
};

/* Of a thread that waited when the counting began: when it was woken. */
struct ff_top_before {
    __u64 until;
    __u32 process;
    __u32 call; /* number + 1 */
    char name[FF_NAME_BYTES];
};

/* A stack that was seen for the first time; behind it `bytes` of what lies at sp. */
struct ff_top_copy {
    __u64 stack; /* its key */
    __u64 ip;
    __u64 sp;
    __u64 bp;
    __u32 process;
    __u32 bytes;
};

struct ff_top_stack {
    __u64 words[FF_STACK_MOST];
    __u32 process;
    __u32 count;
};

#endif
