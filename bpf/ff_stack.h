/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Call sites of a thread that is in a system call: words of its user stack that lie in code. Old
 * ones may be among them. */
#ifndef FF_STACK_H
#define FF_STACK_H

#include "ff_target.h"

struct scan {
    __u64 words[FF_STACK_MOST];
    __u64 seen[FF_STACK_WORDS];
};

/* 1 when `from` <= value < `from` + bytes. BPF has no instruction for the result of a comparison,
 * and each branch would double the ways that the verifier follows: so it is arithmetic, which the
 * empty asm hides from the compiler. */
INLINE __u64 is_within(__u64 value, __u64 from, __u64 bytes)
{
    __u64 distance = value - from;
    __u64 sign = ~distance & (distance - bytes);
    asm volatile("" : "+r"(sign));
    return sign >> 63;
}

/* Keeps the words that lie in code, at most `most`, and in front of them the place in the program
 * itself. Returns how many; 0: the stack can't be read. */
INLINE __u64 scan_stack(struct task_struct *task, struct ff_event_process *ranges,
                        struct scan *scan, __u64 most)
{
    struct pt_regs *registers = bpf_task_pt_regs(task);
    __u64 sp = registers->sp;
    if (bpf_probe_read_user(scan->seen, sizeof scan->seen, (const void *)sp)) {
        __u64 bytes = PAGE - (sp & (PAGE - 1));
        for (int i = 0; i < FF_STACK_WORDS; i++)
            scan->seen[i] = 0;
        if (bytes < sizeof scan->seen && bpf_probe_read_user(scan->seen, bytes, (const void *)sp))
            return 0;
    }
    __u64 program = ranges->program, program_bytes = ranges->program_bytes;
    __u64 libraries = ranges->libraries;
    __u64 libraries_bytes = ff_config.program_only ? 0 : ranges->libraries_bytes;
    scan->words[0] = registers->ip;
    __u64 count = 1;
    for (int i = 0; i < FF_STACK_WORDS; i++) {
        __u64 word = scan->seen[i];
        __u64 is_code =
            is_within(word, program, program_bytes) | is_within(word, libraries, libraries_bytes);
        scan->words[count & (FF_STACK_MOST - 1)] = word;
        count += is_code & is_within(count, 0, most + 1);
    }
    return count & (FF_STACK_MOST - 1);
}

/* Copies the stack of the thread that runs, from its stack pointer on, at most `wanted` bytes, to
 * `to`, which has FF_COPY_MOST. Page by page, as the stack's end is not known: the next page may be
 * no stack. Returns how many bytes. */
INLINE __u64 copy_user_stack(char *to, __u64 sp, __u64 wanted)
{
    __u64 count = 0;
    for (int page = 0; page <= FF_COPY_MOST / PAGE; page++) {
        __u64 bytes = PAGE - ((sp + count) & (PAGE - 1));
        if (count >= wanted || count > FF_COPY_MOST - PAGE)
            break;
        if (bytes > PAGE || bpf_probe_read_user(to + count, bytes, (const void *)(sp + count)))
            break;
        count += bytes;
    }
    return count > FF_COPY_MOST ? 0 : count;
}

#endif
